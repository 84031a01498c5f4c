//! The measures of a comparison that a gate may bound.

use serde_json::json;

use super::row::{MEASURES, NDCG, OF_RANKINGS, Row};
use super::rows::MethodRow;
use super::settings::{BM25, GIVEN, Settings};
use crate::evaluation::gate::{Series, Subject};
use crate::study::data::Data;
use crate::study::fingerprint;
use crate::study::identity::ModelIdentity;

/// Bounds without a system's name hold for the methods as configured, not for their variants and the rows without a model.
pub(super) fn subject(settings: &Settings, data: &Data, models: &ModelIdentity) -> Subject {
    let fixed = [GIVEN, BM25].map(|name| (name.to_owned(), false));
    let methods = settings.rows().map(|row: MethodRow| (row.name(), row.base().is_none()));
    let of = |(system, bounded): (String, bool)| {
        let series = move |(at, measure): (usize, &str)| Series {
            system: system.clone(),
            metric: measure.to_owned(),
            bounded,
            main: at == NDCG,
        };
        names().into_iter().enumerate().map(series).collect::<Vec<_>>()
    };
    let asked = data.questions.iter().map(|one| (&one.id, &one.list.question, &one.list.answers));
    let mut manifest = settings.manifest(models);
    manifest.insert("relevance_threshold".to_owned(), json!(settings.threshold));
    Subject {
        questions: data.questions.iter().map(|question| question.id.clone()).collect(),
        fingerprint: fingerprint(&asked.collect::<Vec<_>>()),
        series: fixed.into_iter().chain(methods).flat_map(of).collect(),
        annotator: None,
        settings: manifest,
    }
}

/// The names of the measures. Without an addition nDCG is the one in the list.
fn names() -> [&'static str; OF_RANKINGS] {
    std::array::from_fn(|at| if at == NDCG { "nDCG@10" } else { MEASURES[at].name })
}

/// The values of each series of [`subject`], by question. nDCG in the list is 0 if the list lost every relevant passage
/// of the collection: without a value, the mean over the other questions could rise.
pub(super) fn values(rows: &[Row]) -> Vec<Vec<Option<f64>>> {
    let of = |row: &Row| {
        let mut measured = row.by_question.clone();
        if let [in_list, of_all, ..] = &mut measured[..] {
            for (in_list, of_all) in in_list.iter_mut().zip(of_all) {
                *in_list = in_list.or(*of_all);
            }
        }
        measured
    };
    rows.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second list lost its relevant passages. The third question was refused.
    #[test]
    fn a_list_without_its_relevant_passages_counts_0() {
        let by_question = vec![vec![Some(0.5), None, None], vec![Some(0.25), Some(0.0), None]];
        let row = Row { by_question, ..Row::named("moi") };
        assert_eq!(values(&[row]), [[Some(0.5), Some(0.0), None], [Some(0.25), Some(0.0), None]]);
    }
}
