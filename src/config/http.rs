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
        aliases: aliases(&methods, keys),
        timeout: keys
            .number_or("http.timeout_ms", "unlimited", 1..=u32::MAX)
            .map(|ms| Duration::from_millis(ms.into())),
        latency_budget_ms: keys.number_or("http.latency_budget_ms", "unlimited", 1..=u32::MAX),
        page: keys.flag("http.page"),
    };
    Http { listen, options }
}

/// The names of `http.model_aliases`, each with its method.
fn aliases(methods: &str, keys: &mut Keys) -> Vec<(String, Option<MethodRef>)> {
    const KEY: &str = "http.model_aliases";
    let mut aliases: Vec<(String, Option<MethodRef>)> = Vec::new();
    for alias in keys
        .text_or(KEY, "off")
        .iter()
        .flat_map(|text| text.split(','))
        .map(str::trim)
        .filter(|alias| !alias.is_empty())
    {
        let (name, method) = alias.split_once('=').map_or((alias, None), |(name, method)| (name, Some(method)));
        let (name, method) = (name.trim(), method.map(str::trim));
        let found = method.and_then(methods::find);
        if let Some(method) = method.filter(|_| found.is_none()) {
            keys.fault(KEY, format!("{name}: must be {methods}, is {method:?}"));
        }
        if name.is_empty() {
            keys.fault(KEY, "a name is empty");
        }
        if aliases.iter().any(|(other, _)| other == name) {
            keys.fault(KEY, format!("{name:?} is given twice"));
        }
        aliases.push((name.to_owned(), found));
    }
    aliases
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
    /// A fault per method whose model is not configured: the server would refuse every such request.
    fn check_models(&self, rerankers: &Rerankers, entailment: bool) -> Vec<String> {
        let mut faults = Vec::new();
        let is_configured = |section: &str| match section {
            "reranker" => rerankers.reranker.is_some(),
            "embedding" => rerankers.embedding.is_some(),
            _ => entailment,
        };
        let HttpOptions { method, aliases, .. } = &self.options;
        let configured = method.map(|method| ("http.method".to_owned(), method));
        let aliases =
            aliases.iter().filter_map(|(name, method)| Some((format!("http.model_aliases: {name}"), (*method)?)));
        for (key, method) in configured.into_iter().chain(aliases) {
            let judge = method.asks_judge().then_some("entailment");
            for section in method.passage_model().map(Role::name).into_iter().chain(judge) {
                if !is_configured(section) {
                    faults.push(format!("{key}: {} needs {section}.model, which is \"off\"", method.name()));
                }
            }
        }
        faults
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
        let (http, faults) = check(&[("model_aliases", "off")]);
        assert!(faults.is_empty() && http.listen.is_none());
        assert_eq!(http.options, HttpOptions { body_bytes: 1024, ..HttpOptions::default() });
        let aliases = ("model_aliases", "rerank-v3.5, fast = embedding");
        let own = [("listen", "127.0.0.1:0"), ("method", "moi"), ("latency_budget_ms", "250"), ("page", "false")];
        let (http, faults) = check(&[&own[..], &[aliases]].concat());
        assert!(faults.is_empty() && http.listen.is_some(), "{faults:?}");
        let aliases = [("rerank-v3.5".to_owned(), None), ("fast".to_owned(), methods::find("embedding"))];
        assert_eq!((http.options.method.unwrap().name(), http.options.aliases.as_slice()), ("moi", &aliases[..]));
        assert_eq!((http.options.latency_budget_ms, http.options.page), (Some(250), false));
    }

    #[test]
    fn every_fault_is_listed() {
        let aliases = ("model_aliases", "x=cascade,y=best,x");
        let (_, faults) = check(&[("listen", "here"), ("method", "guess"), ("timeout_ms", "4294967296"), aliases]);
        assert_eq!(faults[0], "http.listen: must be \"off\" or an address and port, is \"here\"");
        assert!(faults[1].starts_with("http.method: must be \"default\" or one of cascade, moi, "), "{faults:?}");
        assert!(faults[2].starts_with("http.model_aliases: y: must be one of ") && faults[2].ends_with("is \"best\""));
        assert_eq!(faults[3], "http.model_aliases: \"x\" is given twice");
        assert_eq!(faults[4], "http.timeout_ms: must be \"unlimited\" or between 1 and 4294967295, is 4294967296");
    }
}
