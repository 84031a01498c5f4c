//! Fields of a ranking that no other server has. Their names begin with `rerankd_`, to avoid clashes with fields of
//! other servers.

use serde_json::{Map, Value};

use super::json::{Object, elements};
use engine::types::{Dedup, DedupMode, EngineError, Ranked, RankingStage, RerankRequest, ScoreParts};
use rag_metrics::quoted;

/// The retriever's scores, one per document; null if there is none.
const SCORES: &str = "rerankd_scores";
/// Omits results with a lower score.
const THRESHOLD: &str = "rerankd_score_threshold";
/// Returns the number of results with the greatest expected F1.
const AUTO_K: &str = "rerankd_auto_k";
/// Omits results that are no better than no document.
const ONLY_HELPFUL: &str = "rerankd_only_helpful";

/// Milliseconds that scoring should take.
const LATENCY: &str = "rerankd_latency_budget_ms";
/// Most tokens to evaluate.
const TOKENS: &str = "rerankd_token_budget";
/// The places of near-duplicates.
const DEDUP: &str = "rerankd_dedup";
/// Least similarity of near-duplicates.
const SIMILARITY: &str = "rerankd_dedup_similarity";
/// Adds details to each result.
pub(super) const DETAILS: &str = "rerankd_details";

/// Replaces the built-in instruction before the documents, for methods that take one.
pub(super) const INSTRUCTION: &str = "rerankd_instruction";

pub(super) const FIELDS: [&str; 10] =
    [SCORES, THRESHOLD, AUTO_K, ONLY_HELPFUL, INSTRUCTION, LATENCY, TOKENS, DEDUP, SIMILARITY, DETAILS];

/// Sets these fields in `request`, whose passages are already read. `list` is the body's name for the passages.
pub(super) fn read(object: &Object<'_, '_>, list: &str, request: &mut RerankRequest) -> Result<(), EngineError> {
    request.score_threshold = object.number(THRESHOLD)?;
    request.auto_k = object.flag(AUTO_K)?.unwrap_or(false);
    request.only_helpful = object.flag(ONLY_HELPFUL)?.unwrap_or(false);
    request.prefix.instruction = object.string(INSTRUCTION)?.unwrap_or_default();
    request.latency_budget_ms = object.number(LATENCY)?;
    request.token_budget = object.count(TOKENS, 1)?;
    request.dedup = dedup(object)?;
    let Some(value) = object.raw(SCORES) else { return Ok(()) };
    let Some(scores) = elements(value, SCORES)? else {
        return Err(EngineError::invalid(SCORES, "must be a list of numbers"));
    };
    if scores.len() != request.passages.len() {
        let problem = format!("{} given for {} {list}: must be one for each", scores.len(), request.passages.len());
        return Err(EngineError::invalid(SCORES, problem));
    }
    for (index, (score, passage)) in scores.into_iter().zip(&mut request.passages).enumerate() {
        let refused = |_| EngineError::invalid(format!("{SCORES}[{index}]"), "must be a number or null");
        passage.retriever_score = serde_json::from_str(score.get()).map_err(refused)?;
    }
    Ok(())
}

fn dedup(object: &Object<'_, '_>) -> Result<Option<Dedup>, EngineError> {
    let mode = match object.word(DEDUP)?.as_deref() {
        None => None,
        Some("one-place") => Some(DedupMode::OnePlace),
        Some("push-down") => Some(DedupMode::PushDown),
        Some("off") => Some(DedupMode::Off),
        Some(other) => {
            let problem = format!("must be one-place, push-down or off, is {}", quoted(other));
            return Err(EngineError::invalid(DEDUP, problem));
        }
    };
    let similarity = object.number(SIMILARITY)?;
    let Dedup { mode: usual_mode, similarity: usual } = Dedup::default();
    let asked = mode.is_some() || similarity.is_some();
    Ok(asked.then(|| Dedup { mode: mode.unwrap_or(usual_mode), similarity: similarity.unwrap_or(usual) }))
}

/// True if details are asked for.
pub(super) fn details(object: &Object<'_, '_>) -> Result<bool, EngineError> {
    Ok(object.flag(DETAILS)?.unwrap_or(false))
}

/// The details of a result, with the names of rerankd.v1.
pub(super) fn add_details(item: &mut Map<String, Value>, passage: &Ranked) {
    let stage = match passage.stage {
        RankingStage::Retriever => "STAGE_RETRIEVER",
        RankingStage::Alone => "STAGE_ALONE",
        RankingStage::Together => "STAGE_TOGETHER",
    };
    item.insert("utility".into(), passage.utility.into());
    item.insert("tokens_cut".into(), passage.tokens_cut.into());
    item.insert("stage".into(), stage.into());
    for (name, value) in [("standard_error", passage.standard_error), ("outranks_next", passage.outranks_next)] {
        if let Some(value) = value {
            item.insert(name.into(), value.into());
        }
    }
    if let Some(ScoreParts { model, embedding, source }) = passage.score_parts {
        let known = [("model", model), ("embedding", embedding), ("source", source)];
        let known = known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?.into())));
        item.insert("signals".into(), Value::Object(known.collect()));
    }
}

/// The body's name of an engine field, if it is one of these.
pub(super) fn called(field: &str) -> Option<String> {
    if let Some(place) = field.strip_prefix("passages").and_then(|rest| rest.strip_suffix(".retriever_score")) {
        return Some(format!("{SCORES}{place}"));
    }
    let own = match field {
        "score_threshold" => THRESHOLD,
        "auto_k" => AUTO_K,
        "only_helpful" => ONLY_HELPFUL,
        "method" => "rerankd_method",
        "latency_budget_ms" => LATENCY,
        "token_budget" => TOKENS,
        "dedup.mode" => DEDUP,
        "dedup.similarity" => SIMILARITY,
        // A body has no method options. Their faults follow from the method and the list.
        _ if field == "moi" || field.starts_with("moi.") => "rerankd_method",
        _ => return None,
    };
    Some(own.to_owned())
}

/// Replaces the engine's field names in a message by the body's.
pub(super) fn said(text: &str) -> String {
    let terms = [
        ("retriever_score", SCORES),
        ("score_threshold", THRESHOLD),
        ("auto_k", AUTO_K),
        ("only_helpful", ONLY_HELPFUL),
        ("latency_budget_ms", LATENCY),
        // The field is part of a result's details.
        ("tokens_cut", DETAILS),
        ("original_index", "index"),
    ];
    terms.into_iter().fold(text.to_owned(), |text, (engine, own)| text.replace(engine, own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::types::Passage;

    fn asked(body: &str) -> Result<RerankRequest, String> {
        let object = Object::read(body, "", &FIELDS).unwrap();
        let passages = ["a", "b"].into_iter().enumerate().map(|(index, text)| Passage::untitled(index, text.into()));
        let mut request = RerankRequest { passages: passages.collect(), ..RerankRequest::default() };
        read(&object, "documents", &mut request).map_err(|error| error.to_string())?;
        Ok(request)
    }

    #[test]
    fn each_field_is_read() {
        let body = r#"{"rerankd_scores": [3, null], "rerankd_score_threshold": 0.25, "rerankd_auto_k": true,
            "rerankd_only_helpful": true, "rerankd_instruction": "Find code.", "rerankd_latency_budget_ms": 250.5,
            "rerankd_token_budget": 900, "rerankd_details": true}"#;
        let request = asked(body).unwrap();
        let scores: Vec<_> = request.passages.iter().map(|passage| passage.retriever_score).collect();
        assert_eq!((scores, request.score_threshold), (vec![Some(3.0), None], Some(0.25)));
        assert_eq!((request.latency_budget_ms, request.token_budget), (Some(250.5), Some(900)));
        assert!(request.auto_k && request.only_helpful && request.prefix.instruction == "Find code.");
        let none = asked(r#"{"rerankd_scores": null, "rerankd_auto_k": false}"#).unwrap();
        assert!(none.passages.iter().all(|passage| passage.retriever_score.is_none()) && !none.auto_k);
    }

    #[test]
    fn near_duplicates_are_as_asked() {
        let of = |body: &str| asked(body).unwrap().dedup.map(|dedup| (dedup.mode, dedup.similarity));
        assert_eq!(of("{}"), None);
        assert_eq!(of(r#"{"rerankd_dedup": "one-place"}"#), Some((DedupMode::OnePlace, 0.6)));
        assert_eq!(of(r#"{"rerankd_dedup_similarity": 0.8}"#), Some((DedupMode::OnePlace, 0.8)));
        assert_eq!(of(r#"{"rerankd_dedup": "push-down"}"#), Some((DedupMode::PushDown, 0.6)));
        assert_eq!(of(r#"{"rerankd_dedup": "off"}"#), Some((DedupMode::Off, 0.6)));
        assert_eq!(called("dedup.similarity").unwrap(), "rerankd_dedup_similarity");
    }

    #[test]
    fn faults_name_the_field() {
        let rows = [
            (r#"{"rerankd_dedup": "on"}"#, "rerankd_dedup: must be one-place, push-down or off, is \"on\""),
            (r#"{"rerankd_dedup_similarity": "high"}"#, "rerankd_dedup_similarity: must be a number"),
            (r#"{"rerankd_scores": 3}"#, "rerankd_scores: must be a list of numbers"),
            (r#"{"rerankd_scores": [1]}"#, "rerankd_scores: 1 given for 2 documents: must be one for each"),
            (r#"{"rerankd_scores": [1, "2"]}"#, "rerankd_scores[1]: must be a number or null"),
            (r#"{"rerankd_scores": [1, 1e999]}"#, "rerankd_scores[1]: must be a number or null"),
            (r#"{"rerankd_score_threshold": "high"}"#, "rerankd_score_threshold: must be a number"),
            (r#"{"rerankd_auto_k": 1}"#, "rerankd_auto_k: must be true or false"),
            (r#"{"rerankd_instruction": 1}"#, "rerankd_instruction: must be a string"),
        ];
        for (body, message) in rows {
            assert_eq!(asked(body).unwrap_err(), message, "{body}");
        }
    }

    #[test]
    fn the_engines_fields_have_the_names_of_the_body() {
        assert_eq!(called("passages[3].retriever_score").unwrap(), "rerankd_scores[3]");
        assert_eq!(called("auto_k").unwrap(), "rerankd_auto_k");
        assert_eq!(called("passages[3].text"), None);
        assert_eq!(called("method").unwrap(), "rerankd_method");
        assert_eq!(called("token_budget").unwrap(), "rerankd_token_budget");
        assert_eq!(said("latency_budget_ms does not suffice"), "rerankd_latency_budget_ms does not suffice");
        assert_eq!(said("some passages have no retriever_score"), "some passages have no rerankd_scores");
        assert_eq!(said("auto_k had no effect"), "rerankd_auto_k had no effect");
    }
}
