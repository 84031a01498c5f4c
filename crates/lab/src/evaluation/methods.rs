//! Rankers of a list: the order of the data, or a ranking method of the engine.

use engine::methods;
use engine::types::MethodRef;

/// Name of the ranker that keeps the order of the data.
pub const GIVEN: &str = "given";

/// A ranking method, or `None` for the order of the data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ranker(pub Option<MethodRef>);

impl Ranker {
    /// All rankers, each with its line of help.
    pub fn all() -> impl Iterator<Item = (&'static str, String)> {
        std::iter::once((GIVEN, "the order of the data".to_owned()))
            .chain(methods::all().map(|method| (method.name(), method.help())))
    }

    /// The ranker of this name.
    pub fn find(name: &str) -> Option<Self> {
        if name == GIVEN { Some(Self(None)) } else { methods::find(name).map(|method| Self(Some(method))) }
    }
}
