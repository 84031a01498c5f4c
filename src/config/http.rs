//! Settings of the HTTP server and of the protocols of other rerankers.

use std::net::SocketAddr;
use std::time::Duration;

use super::keys::Keys;
use super::rerankers::Rerankers;
use super::{ADDRESS, AccessFiles, Config, ConfigError};
use engine::methods;
use engine::types::{MethodRef, Role};
use server::http::HttpOptions;

/// Settings of HTTP/JSON and of tei.v1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// Address to listen on; `None` serves no HTTP.
    pub listen: Option<SocketAddr>,
    /// Their method also applies to requests of tei.v1 that name none.
    pub options: HttpOptions,
}

/// Reads the section.
pub(super) fn read(body_bytes: usize, keys: &mut Keys) -> Http {
    let names: Vec<&str> = methods::all().map(MethodRef::name).collect();
    let methods = format!("one of {}", names.join(", "));
    let listen = keys.parsed_or("http.listen", "off", ADDRESS, |text| text.parse().ok());
    let options = HttpOptions {
        body_bytes,
        method: keys.parsed_or("http.method", "default", &methods, methods::find),
        timeout: keys
            .number_or("http.timeout_ms", "unlimited", 1..=u32::MAX)
            .map(|ms| Duration::from_millis(ms.into())),
        latency_budget_ms: keys.number_or("http.latency_budget_ms", "unlimited", 1..=u32::MAX),
        page: keys.flag("http.page"),
    };
    Http { listen, options }
}

impl Config {
    /// Checks settings that only a server needs: the methods of its HTTP port must have their models.
    ///
    /// # Errors
    /// [`ConfigError`] with all faults.
    pub fn check_serving(&self) -> Result<(), ConfigError> {
        let faults = self.http.check_models(&self.rerankers, self.entailment.model.is_some());
        if faults.is_empty() { Ok(()) } else { Err(ConfigError { faults, files: AccessFiles::default() }) }
    }
}

impl Http {
    /// A fault per model that the configured method needs and the configuration lacks: the server would refuse every
    /// request without a method.
    fn check_models(&self, rerankers: &Rerankers, entailment: bool) -> Vec<String> {
        let is_configured = |section: &str| match section {
            "reranker" => rerankers.reranker.is_some(),
            "embedding" => rerankers.embedding.is_some(),
            _ => entailment,
        };
        let Some(method) = self.options.method else { return Vec::new() };
        let judge = method.asks_judge().then_some("entailment");
        let sections = method.passage_model().map(Role::name).into_iter().chain(judge);
        let missing = sections.filter(|section| !is_configured(section));
        missing
            .map(|section| format!("http.method: {} needs {section}.model, which is \"off\"", method.name()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(flags: &[(&str, &str)]) -> (Http, Vec<String>) {
        let flags: Vec<_> = flags.iter().map(|(key, value)| (format!("http.{key}"), (*value).to_owned())).collect();
        let mut keys = Keys::merge(None, &[], &flags).unwrap();
        (read(1024, &mut keys), keys.faults)
    }

    #[test]
    fn words_stand_for_absent_values() {
        let (http, faults) = check(&[("listen", "off")]);
        assert!(faults.is_empty() && http.listen.is_none());
        assert!(check(&[]).0.listen.is_some_and(|address| address.ip().is_loopback()), "HTTP is on by default");
        assert_eq!(http.options, HttpOptions { body_bytes: 1024, ..HttpOptions::default() });
        let own = [("listen", "127.0.0.1:0"), ("method", "moi"), ("latency_budget_ms", "250"), ("page", "false")];
        let (http, faults) = check(&own);
        assert!(faults.is_empty() && http.listen.is_some(), "{faults:?}");
        assert_eq!((http.options.method.unwrap().name(), http.options.latency_budget_ms), ("moi", Some(250)));
        assert!(!http.options.page);
    }

    #[test]
    fn every_fault_is_listed() {
        let (_, faults) = check(&[("listen", "here"), ("method", "guess"), ("timeout_ms", "4294967296")]);
        assert_eq!(faults[0], "http.listen: must be \"off\" or an address and port, is \"here\"");
        assert!(faults[1].starts_with("http.method: must be \"default\" or one of cascade, moi, "), "{faults:?}");
        assert_eq!(faults[2], "http.timeout_ms: must be \"unlimited\" or between 1 and 4294967295, is 4294967296");
    }
}
