//! What orders a list: nothing, or a ranking method by its name.

use crate::engine::rerank::Method;

/// Name of the ranker that keeps the order of the data.
pub(crate) const GIVEN: &str = "given";

/// What orders a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ranker {
    pub name: String,
    /// `None` keeps the order of the data.
    pub method: Option<Method>,
}

/// The ranking methods by name. To be replaced by the engine's registry.
const fn registry() -> [(&'static str, Method); 5] {
    [
        ("moi", Method::Moi),
        ("query-generation", Method::QueryGeneration),
        ("bayes-saliency", Method::BayesSaliency),
        ("long-llm-lingua", Method::LongLlmLingua),
        ("retriever", Method::Retriever),
    ]
}

impl Ranker {
    /// Names of all rankers.
    pub fn names() -> Vec<&'static str> {
        std::iter::once(GIVEN).chain(registry().iter().map(|(name, _)| *name)).collect()
    }

    /// The ranker of this name.
    pub fn find(name: &str) -> Option<Self> {
        let method = registry().iter().find(|(registered, _)| *registered == name).map(|(_, method)| *method);
        (method.is_some() || name == GIVEN).then(|| Self { name: name.to_owned(), method })
    }
}
