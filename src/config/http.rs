//! Settings of the HTTP server and of the protocols of other rerankers.

use std::net::SocketAddr;

use serde::Deserialize;

use crate::engine::methods::{self, MethodRef};

/// The section before validation.
#[derive(Debug, Deserialize)]
pub(super) struct RawHttp {
    listen: String,
    method: String,
    model_aliases: String,
}

/// Settings of HTTP/JSON and of tei.v1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Http {
    /// Address to listen on; `None` serves no HTTP.
    pub listen: Option<SocketAddr>,
    /// Method of requests that name none, over HTTP and in tei.v1; `None` for the engine's default.
    pub method: Option<MethodRef>,
    /// Names beside the generator's own that requests over HTTP may give as `model`.
    pub aliases: Vec<String>,
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
        let method = given(self.method).and_then(|name| {
            let found = methods::find(&name);
            if found.is_none() {
                let names: Vec<&str> = methods::all().map(|method| method.name()).collect();
                faults.push(format!("http.method: must be one of {}, is {name:?}", names.join(", ")));
            }
            found
        });
        let aliases = self.model_aliases.split(',').map(str::trim).filter(|alias| !alias.is_empty());
        Http { listen, method, aliases: aliases.map(str::to_owned).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listen: &str, method: &str, aliases: &str) -> (Http, Vec<String>) {
        let mut faults = Vec::new();
        let raw = RawHttp { listen: listen.into(), method: method.into(), model_aliases: aliases.into() };
        (raw.check(&mut faults), faults)
    }

    #[test]
    fn empty_values_are_absent() {
        let (http, faults) = check("", "", "");
        assert_eq!((http, faults), (Http { listen: None, method: None, aliases: Vec::new() }, Vec::new()));
        let (http, faults) = check("127.0.0.1:0", "moi", "rerank-v3.5, jina ,,");
        assert!(faults.is_empty() && http.listen.is_some());
        assert_eq!(
            (http.method.unwrap().name(), http.aliases.as_slice()),
            ("moi", &["rerank-v3.5".into(), "jina".into()][..])
        );
    }

    #[test]
    fn every_fault_is_listed() {
        let (_, faults) = check("here", "guess", "");
        assert!(faults[0].starts_with("http.listen: must be an address and port, is \"here\""), "{faults:?}");
        assert!(faults[1].starts_with("http.method: must be one of cascade, moi, "), "{faults:?}");
    }
}
