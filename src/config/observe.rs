//! The sections `metrics` and `traces`: where a server shows what it does.

use std::net::SocketAddr;

use serde::Deserialize;

use server::observe::traces::TraceOptions;

/// The section `metrics` before validation.
#[derive(Debug, Deserialize)]
pub(super) struct Metrics {
    listen: String,
}

/// The section `traces` before validation.
#[derive(Debug, Deserialize)]
pub(super) struct Traces {
    endpoint: String,
    sample_ratio: String,
}

impl Metrics {
    /// Address of the page; `None` for no page.
    pub fn validate(&self, faults: &mut Vec<String>) -> Option<SocketAddr> {
        if self.listen.is_empty() {
            return None;
        }
        let address = self.listen.parse();
        if address.is_err() {
            let problem = "must be an address with a port, such as 127.0.0.1:9090, or empty";
            faults.push(format!("metrics.listen: {problem}, is {:?}", self.listen));
        }
        address.ok()
    }
}

impl Traces {
    /// The collector and what goes to it; `None` for no traces.
    pub fn validate(self, faults: &mut Vec<String>) -> Option<TraceOptions> {
        let ratio = self.sample_ratio.trim().parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        if ratio.is_none() {
            faults.push(format!("traces.sample_ratio: must be a number from 0 to 1, is {:?}", self.sample_ratio));
        }
        if self.endpoint.is_empty() {
            return None;
        }
        // What the exporter would refuse at the start is a fault of the configuration, like the others.
        let is_url = |uri: http::Uri| uri.scheme_str() == Some("http") && uri.authority().is_some();
        if !self.endpoint.parse().is_ok_and(is_url) {
            faults.push(format!("traces.endpoint: must be a URL that begins with http://, is {:?}", self.endpoint));
        }
        Some(TraceOptions { endpoint: self.endpoint, sample_ratio: ratio.unwrap_or(0.0) })
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn load(flags: &[(&str, &str)]) -> Result<Config, Vec<String>> {
        let flags: Vec<_> = flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Config::from_parts(None, &[], &flags).map_err(|error| error.faults)
    }

    #[test]
    fn nothing_is_shown_by_default() {
        let config = load(&[]).unwrap();
        assert_eq!((config.metrics, config.traces), (None, None));
    }

    #[test]
    fn page_and_collector_are_read() {
        let flags = [
            ("metrics.listen", "127.0.0.1:9090"),
            ("traces.endpoint", "http://collector:4317"),
            ("traces.sample_ratio", "0.25"),
        ];
        let config = load(&flags).unwrap();
        assert_eq!(config.metrics.unwrap().port(), 9090);
        let traces = config.traces.unwrap();
        assert!(traces.endpoint == "http://collector:4317" && (traces.sample_ratio - 0.25).abs() < 1e-12);
    }

    #[test]
    fn each_fault_names_its_key() {
        let flags = [("metrics.listen", "here"), ("traces.endpoint", "collector:4317"), ("traces.sample_ratio", "NaN")];
        let faults = load(&flags).unwrap_err();
        let keys: Vec<_> = faults.iter().map(|fault| fault.split(':').next().unwrap()).collect();
        assert_eq!(keys, ["metrics.listen", "traces.sample_ratio", "traces.endpoint"]);
        for endpoint in ["http://collector :4317", "http://collector:4317 ", "http://", "https://collector:4317"] {
            let faults = load(&[("traces.endpoint", endpoint)]).unwrap_err();
            assert!(faults.len() == 1 && faults[0].starts_with("traces.endpoint: "), "{faults:?}");
        }
    }
}
