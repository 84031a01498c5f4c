//! Settings of the HTTP server and of the protocols of other rerankers.

use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;

use super::rerankers::Rerankers;
use super::{AccessFiles, Config, ConfigError};
use engine::methods::{self, MethodRef};
use engine::models::Role;

/// The section before validation.
#[derive(Debug, Deserialize)]
pub(super) struct RawHttp {
    listen: String,
    method: String,
    model_aliases: String,
    timeout_ms: u64,
    latency_budget_ms: u64,
}

/// Settings of HTTP/JSON and of tei.v1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// Address to listen on; `None` serves no HTTP.
    pub listen: Option<SocketAddr>,
    /// Method of requests that name none, over HTTP and in tei.v1; `None` for the engine's default.
    pub method: Option<MethodRef>,
    /// Names beside the generator's own that requests over HTTP may give as `model`, each with a method of its own where it has
    /// one.
    pub aliases: Vec<(String, Option<MethodRef>)>,
    /// Time of requests over HTTP that state none; `None` for no end.
    pub timeout: Option<Duration>,
    /// Milliseconds that scoring should take in rankings over HTTP by the default method that do not say; `None` for as long as it takes.
    pub latency_budget_ms: Option<u32>,
}

impl RawHttp {
    /// Validates the section. Appends a fault for each wrong value.
    pub(super) fn check(self, faults: &mut Vec<String>) -> Http {
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        let listen = given(self.listen).and_then(|text| match text.parse::<SocketAddr>() {
            Ok(address) => Some(address),
            Err(_) => {
                faults.push(format!("http.listen: must be an address and port, is {text:?}"));
                None
            }
        });
        let method = given(self.method).and_then(|name| find("http.method", &name, faults));
        let named = self.model_aliases.split(',').map(str::trim).filter(|alias| !alias.is_empty());
        let aliases = named.map(|alias| match alias.split_once('=') {
            None => (alias.to_owned(), None),
            Some((name, chosen)) => {
                (name.trim().to_owned(), find(&format!("http.model_aliases: {name}"), chosen.trim(), faults))
            }
        });
        let aliases: Vec<(String, Option<MethodRef>)> = aliases.collect();
        if aliases.iter().any(|(name, _)| name.is_empty()) {
            faults.push("http.model_aliases: a name is empty".to_owned());
        }
        for (name, _) in &aliases {
            if aliases.iter().filter(|(other, _)| other == name).count() > 1 {
                faults.push(format!("http.model_aliases: {name:?} is given twice"));
                break;
            }
        }
        let mut milliseconds = |key: &str, value: u64| {
            u32::try_from(value).unwrap_or_else(|_| {
                faults.push(format!("http.{key}: must be at most {}, is {value}", u32::MAX));
                0
            })
        };
        let timeout = milliseconds("timeout_ms", self.timeout_ms);
        let budget = milliseconds("latency_budget_ms", self.latency_budget_ms);
        Http {
            listen,
            method,
            aliases,
            timeout: (timeout > 0).then(|| Duration::from_millis(timeout.into())),
            latency_budget_ms: Some(budget).filter(|budget| *budget > 0),
        }
    }
}

impl Config {
    /// Refuses what only a server cannot do with: names of its HTTP port whose method has no model.
    ///
    /// # Errors
    /// [`ConfigError`] with all faults.
    pub fn check_serving(&self) -> Result<(), ConfigError> {
        let faults = self.http.check_models(&self.rerankers, self.entailment.model.is_some());
        if faults.is_empty() { Ok(()) } else { Err(ConfigError { faults, files: AccessFiles::default() }) }
    }
}

impl Http {
    /// A fault for each method whose model is not configured: every request by it would be refused.
    fn check_models(&self, rerankers: &Rerankers, entailment: bool) -> Vec<String> {
        let mut faults = Vec::new();
        let is_configured = |section: &str| match section {
            "reranker" => rerankers.reranker.is_some(),
            "embedding" => rerankers.embedding.is_some(),
            _ => entailment,
        };
        let configured = self.method.map(|method| ("http.method".to_owned(), method));
        let aliases =
            self.aliases.iter().filter_map(|(name, method)| Some((format!("http.model_aliases: {name}"), (*method)?)));
        for (key, method) in configured.into_iter().chain(aliases) {
            let judge = method.asks_judge().then_some("entailment");
            for section in method.beside().map(Role::name).into_iter().chain(judge) {
                if !is_configured(section) {
                    faults.push(format!("{key}: {} needs {section}.model, which is empty", method.name()));
                }
            }
        }
        faults
    }
}

/// The method of this name, and a fault where there is none.
fn find(of: &str, name: &str, faults: &mut Vec<String>) -> Option<MethodRef> {
    let found = methods::find(name);
    if found.is_none() {
        let names: Vec<&str> = methods::all().map(|method| method.name()).collect();
        faults.push(format!("{of}: must be one of {}, is {name:?}", names.join(", ")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listen: &str, method: &str, aliases: &str) -> (Http, Vec<String>) {
        let mut faults = Vec::new();
        let (listen, method, model_aliases) = (listen.into(), method.into(), aliases.into());
        let raw = RawHttp { listen, method, model_aliases, timeout_ms: 0, latency_budget_ms: 250 };
        (raw.check(&mut faults), faults)
    }

    #[test]
    fn empty_values_are_absent() {
        let (http, faults) = check("", "", "");
        assert!(faults.is_empty() && http.listen.is_none() && http.method.is_none() && http.aliases.is_empty());
        assert_eq!((http.timeout, http.latency_budget_ms), (None, Some(250)));
        let (http, faults) = check("127.0.0.1:0", "moi", "rerank-v3.5, fast = embedding ,,");
        assert!(faults.is_empty() && http.listen.is_some(), "{faults:?}");
        let aliases = [("rerank-v3.5".to_owned(), None), ("fast".to_owned(), methods::find("embedding"))];
        assert_eq!((http.method.unwrap().name(), http.aliases.as_slice()), ("moi", &aliases[..]));
    }

    /// The parser of the section ended at them, without the key's name and before every other fault.
    #[test]
    fn milliseconds_beyond_their_range_are_named() {
        let faults = super::super::Config::from_parts(
            None,
            &[],
            &[
                ("http.timeout_ms".to_owned(), "4294967296".to_owned()),
                ("http.latency_budget_ms".to_owned(), "5000000000".to_owned()),
                ("limits.passages".to_owned(), "0".to_owned()),
            ],
        )
        .unwrap_err()
        .faults;
        let named = |key: &str| faults.iter().any(|fault| fault.starts_with(key));
        assert!(named("http.timeout_ms: must be at most 4294967295, is 4294967296"), "{faults:?}");
        assert!(named("http.latency_budget_ms: ") && named("limits.passages: "), "{faults:?}");
    }

    #[test]
    fn every_fault_is_listed() {
        let (_, faults) = check("here", "guess", "x=cascade,y=best,x");
        assert!(faults[0].starts_with("http.listen: must be an address and port, is \"here\""), "{faults:?}");
        assert!(faults[1].starts_with("http.method: must be one of cascade, moi, "), "{faults:?}");
        assert!(faults[2].starts_with("http.model_aliases: y: must be one of ") && faults[2].ends_with("is \"best\""));
        assert_eq!(faults[3], "http.model_aliases: \"x\" is given twice");
    }
}
