//! The sections `metrics`, `traces` and `live`.

use std::net::SocketAddr;

use super::ADDRESS;
use super::Entailment;
use super::keys::Keys;
use engine::live::LiveOptions;
use server::observe::traces::TraceOptions;

/// The address of the page of metrics, and the collector of traces; `None` for none.
pub(super) fn read(keys: &mut Keys) -> (Option<SocketAddr>, Option<TraceOptions>) {
    let metrics = keys.parsed_or("metrics.listen", "off", ADDRESS, |text| text.parse().ok());
    let sample_ratio = keys.number("traces.sample_ratio", 0.0..=1.0);
    // The exporter refuses other URLs when it starts.
    let is_url = |uri: http::Uri| uri.scheme_str() == Some("http") && uri.authority().is_some();
    let url = |text: &str| text.parse().is_ok_and(is_url).then(|| text.to_owned());
    let endpoint = keys.parsed_or("traces.endpoint", "off", "a URL that begins with http://", url);
    (metrics, endpoint.map(|endpoint| TraceOptions { endpoint, sample_ratio }))
}

/// Number of first passages of a ranking that are measured: as many as a prompt usually has.
const LIVE_PASSAGES: usize = 5;

/// The measurement of live traffic; `None` for none.
pub(super) fn read_live(entailment: &Entailment, keys: &mut Keys) -> Option<LiveOptions> {
    let sample_ratio = keys.number("live.sample_ratio", 0.0..=1.0);
    let options = LiveOptions { sample_ratio, passages: LIVE_PASSAGES };
    let live = (sample_ratio > 0.0).then_some(options);
    if live.is_some() && entailment.model.is_none() {
        keys.fault("live.sample_ratio", "must be 0 without an entailment model: set entailment.model");
    }
    live
}

#[cfg(test)]
mod tests {
    use crate::config::Config;
    use engine::live::LiveOptions;

    fn load(flags: &[(&str, &str)]) -> Result<Config, Vec<String>> {
        let flags: Vec<_> = flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Config::from_parts(None, &[], &flags).map_err(|error| error.faults)
    }

    #[test]
    fn nothing_is_shown_by_default() {
        let config = load(&[]).unwrap();
        assert_eq!((config.metrics, config.traces, config.live), (None, None, None));
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
    fn live_traffic_is_measured_with_an_entailment_model() {
        let live = |flags: &[(&str, &str)]| load(flags).map(|config| config.live);
        let options = LiveOptions { sample_ratio: 0.25, passages: 5 };
        assert_eq!(live(&[("live.sample_ratio", "0.25")]), Ok(Some(options)));
        let off = ("entailment.model", "off");
        assert_eq!(live(&[off]), Ok(None));
        let faults = live(&[off, ("live.sample_ratio", "0.1")]).unwrap_err();
        assert_eq!(faults, ["live.sample_ratio: must be 0 without an entailment model: set entailment.model"]);
        let faults = live(&[("live.sample_ratio", "1.5")]).unwrap_err();
        assert!(faults.len() == 1 && faults[0].starts_with("live.sample_ratio: "), "{faults:?}");
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
