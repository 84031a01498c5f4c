//! Conversions between messages and a caller's instruction and examples.

use super::v1;
use engine::types::{Example, PromptPrefix};

/// Converts the instruction and the examples of a request.
pub(super) fn opening(instruction: String, examples: Vec<v1::Example>) -> PromptPrefix {
    let example = |wire: v1::Example| Example { title: wire.passage_title, passage: wire.passage, query: wire.query };
    PromptPrefix { instruction, examples: examples.into_iter().map(example).collect() }
}

pub(super) fn examples_to_wire(opening: &PromptPrefix) -> Vec<v1::Example> {
    let example = |example: &Example| v1::Example {
        passage: example.passage.clone(),
        query: example.query.clone(),
        passage_title: example.title.clone(),
    };
    opening.examples.iter().map(example).collect()
}

#[cfg(test)]
mod tests {
    use super::super::convert;
    use super::*;
    use engine::types::RerankRequest;

    #[test]
    fn instruction_and_examples_survive_the_round_trip() {
        let example =
            |text: &str| Example { title: format!("{text} t"), passage: format!("{text} p"), query: text.into() };
        let opening = PromptPrefix { instruction: "Write a claim.".into(), examples: vec![example("a"), example("b")] };
        let request = RerankRequest { prefix: opening.clone(), ..RerankRequest::default() };
        assert_eq!(convert::request(convert::request_to_wire(&request)).unwrap().prefix, opening);
        assert!(convert::request(v1::RerankRequest::default()).unwrap().prefix.is_built_in());
    }
}
