//! The paths to which requests are posted.

use super::answer::Envelope;
use super::problem::Shape;
use super::state::INFO;

/// A path to which requests are posted.
#[derive(Debug)]
pub(super) struct Route {
    pub path: &'static str,
    pub kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Ranks the documents of one query.
    Rerank {
        /// True if documents are returned unless the request says otherwise.
        echo: bool,
        /// The version of Cohere's API that the answer states.
        version: &'static str,
        /// The JSON around the results.
        envelope: Envelope,
    },
    /// Builds the context of a prompt.
    Context,
    /// Scores pairs.
    Score,
}

pub(super) static ROUTES: [Route; 11] = [
    Route { path: "/", kind: Kind::Rerank { echo: true, version: "1", envelope: Envelope::List } },
    Route { path: "/v1/rerank", kind: Kind::Rerank { echo: true, version: "1", envelope: Envelope::List } },
    Route { path: "/v2/rerank", kind: Kind::Rerank { echo: false, version: "2", envelope: Envelope::List } },
    Route { path: "/rerank", kind: Kind::Rerank { echo: true, version: "1", envelope: Envelope::Rerank } },
    Route { path: "/reranking", kind: Kind::Rerank { echo: false, version: "1", envelope: Envelope::List } },
    Route { path: "/v1/reranking", kind: Kind::Rerank { echo: false, version: "1", envelope: Envelope::List } },
    // NVIDIA NIM.
    Route { path: "/v1/ranking", kind: Kind::Rerank { echo: false, version: "1", envelope: Envelope::Rankings } },
    // SageMaker's container contract, together with `/ping`.
    Route { path: "/invocations", kind: Kind::Rerank { echo: true, version: "1", envelope: Envelope::List } },
    Route { path: "/v1/context", kind: Kind::Context },
    Route { path: "/score", kind: Kind::Score },
    Route { path: "/v1/score", kind: Kind::Score },
];

impl Route {
    /// The shape of errors until the body says otherwise.
    pub fn shape(&self) -> Shape {
        match self.kind {
            Kind::Rerank { version: "2", .. } => Shape::Flat,
            Kind::Rerank { envelope: Envelope::Rerank | Envelope::Rankings, .. } => Shape::Listed,
            Kind::Rerank { .. } | Kind::Context | Kind::Score => Shape::Nested,
        }
    }
}

/// The shape of errors of a path until the body says otherwise.
pub(super) fn shape_of(path: &str) -> Shape {
    match path {
        INFO => Shape::Tei,
        _ => ROUTES.iter().find(|route| route.path == path).map_or(Shape::Nested, Route::shape),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each client reads errors in one shape: Jina's reads a text, infinity's a list, Cohere's a message.
    #[test]
    fn errors_have_the_shape_of_their_path() {
        let shapes = ROUTES.iter().map(|route| (route.path, route.shape()));
        for (path, shape) in shapes {
            let expected = match path {
                "/v2/rerank" => Shape::Flat,
                "/rerank" | "/v1/ranking" => Shape::Listed,
                _ => Shape::Nested,
            };
            assert_eq!((shape_of(path), shape), (expected, expected), "{path}");
        }
    }
}
