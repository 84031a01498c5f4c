//! Notes on how a comparison was measured.

use std::collections::BTreeSet;

use super::rows::{GENERATOR, MethodRow, OPENING, Variant};
use super::settings::{BM25, GIVEN, Settings};
use super::summary::Summary;
use crate::study::identity::ModelIdentity;
use crate::study::report::{generator_note, machine, passages_note};
use prefix_scheduler::model::PromptFormat;
use rag_metrics::resample::Test;

/// The notes, one sentence per element.
pub(super) fn of(settings: &Settings, summary: &Summary, models: &ModelIdentity) -> Vec<String> {
    let statistics = &settings.statistics;
    let percent = format!("{:.0} %", statistics.confidence * 100.0);
    let test = match statistics.test {
        Test::Randomisation => "paired permutation tests, which flip the signs of the differences",
        Test::Bootstrap => "paired bootstrap tests",
    };
    let cut = passages_note(settings.passage_tokens);
    let budget = settings.latency_budget_ms.map_or_else(String::new, |budget| format!(", latency budget {budget} ms"));
    let (at_once, waiting) = match settings.concurrency {
        1 => ("Requests were sent one after the other".to_owned(), ""),
        many => (
            format!("{many} questions were asked at once"),
            ", and include waiting for other requests: they are not the speed of a method",
        ),
    };
    let named = |frame: Option<PromptFormat>, of: &str| {
        frame.map_or_else(String::new, |frame| format!(", {of} {}", frame.name()))
    };
    // If there is a scorer, its prompts determine the ranking.
    let frame = match (&models.scorer, settings.by_generator) {
        (Some(_), false) => named(models.scorer_frame, "frame"),
        (Some(_), true) => {
            format!(
                "{}{}",
                named(models.scorer_frame, "frame of the scorer"),
                named(Some(models.frame), "of the generator")
            )
        }
        (None, _) => named(Some(models.frame), "frame"),
    };
    let mut notes = vec![
        generator_note(models, &format!("{frame}; {cut}{budget}; seed {}", settings.seed)),
        format!("Machine: {}. {at_once}; seconds are from the request to its answer{waiting}.", machine()),
        format!("`{GIVEN}` is the order of the file. `{BM25}` is BM25 with the document frequencies of the list itself."),
        "nDCG@10 in the list takes its ideal from the labels of the list: 1 is the best that any order of it can reach.".into(),
        "nDCG@10 of all judged takes its ideal from all relevant passages of the collection, on questions that state their number; \
         passages that the retriever missed count as relevant once."
            .into(),
        format!("A passage is relevant from a label of {} on. Recall divides by the relevant passages of the collection if \
                 their number is given, else by those of the list.", settings.threshold),
        "Tokens are those of the scoring model, and the cost of a request without a cache: evaluated tokens, and those reused from earlier requests \
         and rounds. Without sharing, every prompt would be evaluated from its beginning. Tokens of an embedding model or a cross-encoder have a separate column."
            .into(),
        format!(
            "Brackets are {percent} bootstrap intervals over questions ({} resamples; intervals of differences take as many as tests). p is \
             from {test} ({} resamples), then adjusted by Holm over the rows of the column.",
            statistics.resamples, statistics.test_resamples
        ),
        "Kendall's tau with the labels is over pairs of a relevant and another passage; `expected_tau` is over all pairs, and about the \
         generator's own preference."
            .into(),
        "Calibration error: expected, over ten bins of equal count, or fewer of at least twenty. AUC: share of pairs of a relevant and another passage, \
         of any two questions, that `score` orders rightly."
            .into(),
    ];
    // No calibration applies to a request with a prompt prefix, or in this process if prompt formats are compared.
    let calibrated = |row: &MethodRow| matches!(row.variant, Variant::Configured | Variant::Generator);
    // A calibration for other models is stored, but not applied.
    let applied = |row: &MethodRow| {
        let name = row.name();
        summary.groups.iter().flat_map(|group| &group.rows).any(|one| one.calibrated && one.name == name)
    };
    notes.extend(settings.rows().filter(calibrated).filter(applied).filter_map(|row| {
        let by_scorer = models.scorer.is_some() && row.is_scored_by_scorer();
        let own = if by_scorer { &models.scorer_calibrations } else { &models.calibrations };
        // There may be one calibration each for lists with and without retriever scores, and with and without an
        // embedding model.
        let of_row = own.iter().filter(|one| one.method == row.method.name() && models.holds(one));
        let lists: BTreeSet<u64> = of_row.map(|one| one.lists.into()).collect();
        let lists: Vec<String> = lists.iter().map(u64::to_string).collect();
        let (name, lists) = (row.name(), lists.join(" or "));
        let text = format!("`{name}` is calibrated on {lists} lists: its calibration error on these says nothing.");
        (!lists.is_empty()).then_some(text)
    }));
    notes.extend(opening(settings));
    if !settings.frames.is_empty() {
        let text = "Prompts of rows named `+chat` have the chat template that llama.cpp knows, of `+jinja` the template of the \
                    model's file, evaluated, and of `+plain` none. They are tested against the same method only. No row is calibrated.";
        notes.push(text.to_owned());
    }
    if settings.by_generator {
        notes.push(format!(
            "Rows named `{GENERATOR}` are scored by the generator, the rows of the same methods without it by the scorer. Tokens of the two \
             models are not comparable."
        ));
    }
    notes
}

/// Describes the caller's instruction and examples; `None` for the built-in prompt.
fn opening(settings: &Settings) -> Option<String> {
    let own = &settings.opening;
    let instruction = match own.instruction.trim() {
        "" => "the built-in instruction".to_owned(),
        text => format!("the instruction {text:?}"),
    };
    let examples = match own.examples.len() {
        0 => String::new(),
        count => format!(" (examples: {count})"),
    };
    let text = format!(
        "Rows named `{OPENING}` have {instruction}{examples} before the passages, the others the built-in prompt."
    );
    (!own.is_built_in()).then_some(text)
}
