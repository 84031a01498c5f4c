//! Bodies of `/score`, as in vLLM: pairs of texts, one query for many texts or one query per text.

use super::documents::{self, Document};
use super::instruction;
use super::json::Object;
use super::model::Choice;
use super::own;
use super::problem::Problem;
use super::request::{COMMON, Reader, cut_side, raw_scores, truncate, whole};
use crate::peers;
use engine::types::{EngineError, Pair};

/// Field names of the two sides of the pairs.
const SIDES: [(&str, &str); 4] =
    [("queries", "documents"), ("queries", "items"), ("data_1", "data_2"), ("text_1", "text_2")];

/// A request for scores.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct AskedScores {
    pub pairs: Vec<Pair>,
    pub choice: Choice,
    /// True if scores are utilities.
    pub raw_scores: bool,
    /// True if entries have details.
    pub details: bool,
    /// Warnings about an instruction without effect and about repaired texts.
    pub warnings: Vec<String>,
    /// Names of the two sides in the body.
    sides: (&'static str, &'static str),
    /// True if all pairs share one query.
    one_query: bool,
}

impl AskedScores {
    /// The error with the body's name for its field.
    pub fn named(&self, error: EngineError) -> EngineError {
        let (first, second) = self.sides;
        peers::named(error, |field| match field.strip_prefix("pairs") {
            None => own::called(field).unwrap_or_else(|| field.to_owned()),
            Some(rest) => match rest.strip_suffix(".query") {
                Some(_) if self.one_query => first.to_owned(),
                Some(place) => format!("{first}{place}"),
                None => format!("{second}{}", rest.trim_end_matches(".text")),
            },
        })
    }

    /// Replaces the engine's field names in a message by the body's.
    pub fn said(&self, text: &str) -> String {
        own::said(text).replace("pairs[", &format!("{}[", self.sides.1))
    }
}

impl Reader {
    /// Reads the body of a request for scores. Blocking, like [`Reader::rerank`].
    pub fn score(&self, body: &[u8]) -> Result<AskedScores, Problem> {
        let names = ["queries", "documents", "items", "data_1", "data_2", "text_1", "text_2", "truncation_direction"];
        let instructions = instruction::NAMES.into_iter().chain([own::INSTRUCTION]);
        let wanted: Vec<&str> = COMMON.into_iter().chain(names).chain(instructions).chain([own::DETAILS]).collect();
        let object = whole(body, &wanted)?;
        let choice = self.names.choose(&object)?;
        let given = SIDES.into_iter().find(|(first, second)| object.has(first) && object.has(second));
        let Some(sides) = given else {
            return Err(object.missing(missing(&object)).into());
        };
        let side = |name: &'static str| match object.raw(name) {
            Some(value) => documents::list(value, name, None),
            None => Ok(Vec::new()),
        };
        let (first, second) = (side(sides.0)?, side(sides.1)?);
        if first.len() != 1 && first.len() != second.len() {
            let problem = format!("{} given for {} {}: must be 1 or as many", first.len(), second.len(), sides.1);
            return Err(EngineError::invalid(sides.0, problem).into());
        }
        self.check_count(sides.1, second.len())?;
        let one_query = first.len() == 1;
        let repaired: Vec<String> = [(sides.0, &first), (sides.1, &second)]
            .into_iter()
            .flat_map(|(name, side)| documents::warnings(name, side))
            .collect();
        let queries: Vec<String> = first.into_iter().map(Document::joined).collect();
        for (index, query) in queries.iter().enumerate() {
            let field = if one_query { sides.0.to_owned() } else { format!("{}[{index}]", sides.0) };
            self.check_query(&field, query)?;
        }
        let (truncate, cut_side) = (truncate(&object)?, cut_side(&object)?);
        // Once per query, not per pair: a bound for both sides together needs the query's tokens.
        let bounds = queries.iter().map(|query| self.passage_tokens(&object, query, &choice));
        let bounds: Vec<Option<usize>> = bounds.collect::<Result<_, _>>()?;
        let mut pairs = Vec::with_capacity(second.len());
        for (index, document) in second.into_iter().enumerate() {
            let own = if one_query { 0 } else { index };
            let (Some(query), Some(&passage_tokens)) = (queries.get(own), bounds.get(own)) else { break };
            pairs.push(Pair { query: query.clone(), text: document.joined(), truncate, passage_tokens, cut_side });
        }
        // Without the warning, a caller of a causal reranker would assume that the instruction had applied.
        let given = instruction::given(&object).or(object.has(own::INSTRUCTION).then_some(own::INSTRUCTION));
        let warning = given.map(|name| format!("{name} has no effect on scores of pairs; /rerank takes it"));
        let warnings = choice.warning.iter().cloned().chain(object.misspelt()).chain(warning).chain(repaired).collect();
        let details = own::details(&object)?;
        Ok(AskedScores { pairs, choice, raw_scores: raw_scores(&object)?, details, warnings, sides, one_query })
    }
}

/// The missing field: the other side of a field that is set, or the first field of all.
fn missing(object: &Object<'_, '_>) -> &'static str {
    let half = SIDES.into_iter().find_map(|(first, second)| match (object.has(first), object.has(second)) {
        (true, _) => Some(second),
        (_, true) => Some(first),
        _ => None,
    });
    half.unwrap_or("queries")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits =
        Limits { passages: 100, passage_bytes: 1_000, orders: 10, tokens: 1_000, pairs: 10, ..Limits::WIDE };
    use crate::http::HttpOptions;
    use crate::http::model::Names;
    use crate::http::problem::Shape;
    use engine::types::Limits;

    fn read(body: &str) -> Result<AskedScores, Problem> {
        let options = HttpOptions::default();
        let reader = Reader {
            own: Shape::Nested,
            options,
            limits: LIMITS,
            names: Names { scoring: vec!["own".into()], ..Names::default() },
            generators: Vec::new(),
        };
        reader.score(body.as_bytes())
    }

    fn texts(body: &str) -> Vec<(String, String)> {
        read(body).unwrap().pairs.into_iter().map(|pair| (pair.query, pair.text)).collect()
    }

    #[test]
    fn one_with_many_and_one_with_one() {
        let pair = |left: &str, right: &str| (left.to_owned(), right.to_owned());
        assert_eq!(texts(r#"{"text_1": "q", "text_2": ["a", "b"]}"#), [pair("q", "a"), pair("q", "b")]);
        assert_eq!(texts(r#"{"data_1": ["p", "q"], "data_2": ["a", "b"]}"#), [pair("p", "a"), pair("q", "b")]);
        assert_eq!(texts(r#"{"queries": ["q"], "documents": {"content": "a"}}"#), [pair("q", "a")]);
        assert_eq!(texts(r#"{"queries": "q", "items": "a"}"#), [pair("q", "a")]);
    }

    /// Every pair copies its query, so the size is checked first.
    #[test]
    fn a_large_query_is_refused_before_it_is_copied() {
        let query = "x".repeat(1_001);
        let Err(Problem::Engine(error)) = read(&format!(r#"{{"text_1": "{query}", "text_2": ["a", "b"]}}"#)) else {
            panic!("refused");
        };
        assert_eq!(error.to_string(), "text_1: 1001 bytes given, at most 1000 allowed");
        let many = vec!["\"a\""; 101].join(", ");
        let Err(Problem::Engine(error)) = read(&format!(r#"{{"text_1": "q", "text_2": [{many}]}}"#)) else {
            panic!("refused");
        };
        assert_eq!(error.to_string(), "text_2: 101 given, at most 100 allowed");
    }

    #[test]
    fn an_instruction_without_effect_gets_a_warning() {
        for name in ["instruction", "instruct", "rerankd_instruction"] {
            let asked = read(&format!(r#"{{"{name}": "Find code.", "text_1": "q", "text_2": "a"}}"#)).unwrap();
            assert!(asked.warnings[0].starts_with(&format!("{name} has no effect")));
        }
        let body = r#"{"chat_template_kwargs": {"instruction": "Find code."}, "text_1": "q", "text_2": "a"}"#;
        let warned = read(body).unwrap().warnings;
        assert!(warned[0].starts_with("chat_template_kwargs.instruction has no effect"), "{warned:?}");
        assert!(read(r#"{"text_1": "q", "text_2": "a"}"#).unwrap().warnings.is_empty());
    }

    #[test]
    fn faults_are_named() {
        let rows = [
            (r#"{"text_1": ["p", "q"], "text_2": ["a"]}"#, "text_1: 2 given for 1 text_2"),
            (r#"{"text_1": "q"}"#, "text_2: must be set"),
            (r#"{"documents": ["a"]}"#, "queries: must be set"),
            ("{}", "queries: must be set"),
            (r#"{"text_1": [[5]], "text_2": "a"}"#, "text_1[0]: must be a string"),
        ];
        for (body, message) in rows {
            let Problem::Engine(error) = read(body).unwrap_err() else { panic!("{body}") };
            assert!(error.to_string().starts_with(message), "{body}: {error}");
        }
        let asked = read(r#"{"text_1": ["p", "q"], "text_2": ["a", "b"]}"#).unwrap();
        let named = |field: &str| asked.named(EngineError::invalid(field, "x")).to_string();
        assert_eq!(named("pairs[1].query"), "text_1[1]: x");
        assert_eq!(named("pairs[1].text"), "text_2[1]: x");
        assert_eq!(named("pairs"), "text_2: x");
        let one = read(r#"{"text_1": "p", "text_2": ["a", "b"]}"#).unwrap();
        assert_eq!(one.named(EngineError::invalid("pairs[0].query", "x")).to_string(), "text_1: x");
    }
}
