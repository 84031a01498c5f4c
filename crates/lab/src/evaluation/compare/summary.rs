//! Summary of the rankings: measures by row, differences, and the quality of scores.
//!
//! A question counts in nDCG in the list only if its list holds a relevant passage: otherwise all orders are equal. In
//! the other measures of rankings a list without relevant passages counts 0 if the collection has some. Tokens, seconds and scores count on every question that the method answered.

use rayon::prelude::*;

use super::ask::{Outcome, Rows};
use super::gains::{self, OtherGains};
use super::quality;
use super::row::{NDCG, OF_RANKINGS, OTHERS, Row, SECONDS};
use super::settings::{BM25, GIVEN, Settings};
use super::verdict::{self, Verdict};
use super::{prompts, scorer};
use crate::study::data::{Data, Question};
use crate::study::journal::Entry;
use crate::study::mean::{Gain, Mean, mean_of};
use crate::study::warned::{self, Warned};
use crate::study::{Record, Refused};
use numeric::real;
use rag_metrics::multiple::holm_of;
use rag_metrics::never;
use rag_metrics::rank::{Grading, Kind, Metric, Ranking};
use rag_metrics::resample::{Compared, Statistics, interval};

/// The rows over the questions of one file, or of all.
#[derive(Debug, Clone)]
pub struct Group {
    pub name: String,
    pub questions: usize,
    /// Questions with a relevant passage in the list.
    pub ranked: usize,
    /// Passages of all lists.
    pub passages: usize,
    pub rows: Vec<Row>,
    pub verdict: Verdict,
    /// The prompt format to configure; `None` if none were compared.
    pub prompts: Option<String>,
    /// The verdict on the scorer; `None` if it was not compared with the generator.
    pub scorer: Option<String>,
    /// Warnings of rankings.
    pub warned: Vec<Warned>,
    /// Questions that were asked at once.
    pub concurrency: usize,
}

impl Group {
    /// Advice on settings, besides the verdict on the methods.
    pub fn advice(&self) -> impl Iterator<Item = &str> {
        [&self.prompts, &self.scorer].into_iter().flatten().map(String::as_str)
    }
}

/// A whole comparison.
#[derive(Debug)]
pub struct Summary {
    /// All files together if there are several, then one group per file.
    pub groups: Vec<Group>,
    /// Questions that a method refused.
    pub failed: Vec<Refused>,
}

/// A question with its rankings.
type Asked<'a> = (&'a Question, &'a Rows);

impl Summary {
    pub(super) fn new(settings: &Settings, data: &Data, entries: &[Entry<Rows>]) -> Self {
        let rows = entries.iter().filter_map(|entry| entry.value.as_ref());
        let asked: Vec<Asked<'_>> = data.questions.iter().zip(rows).collect();
        let of_file = |file: usize| asked.iter().filter(|one| one.0.file == file).copied().collect::<Vec<_>>();
        let mut groups = Vec::new();
        if data.files.len() > 1 {
            groups.push(group(settings, format!("all {} files", data.files.len()), &asked));
        }
        groups.extend(data.files.iter().enumerate().map(|(at, name)| group(settings, name.clone(), &of_file(at))));
        let refused = |(question, rows): &Asked<'_>| {
            let of = |error| Refused { id: question.id.clone(), error };
            rows.problems().into_iter().map(of).collect::<Vec<_>>()
        };
        Self { groups, failed: asked.iter().flat_map(refused).collect() }
    }
}

fn group(settings: &Settings, name: String, asked: &[Asked<'_>]) -> Group {
    let fixed = [GIVEN, BM25].map(|name| (name.to_owned(), None));
    let named: Vec<_> = fixed.into_iter().chain(settings.rows().map(|row| (row.name(), Some(row)))).collect();
    let mut rows: Vec<Row> =
        named.par_iter().map(|(name, own)| Row { asked: *own, ..row(settings, name, asked) }).collect();
    // One family of tests each: all rows against `given`, and the methods against `bm25`.
    let over = |rows: &[Row], measure: usize| -> Vec<(Option<Gain>, Option<Gain>)> {
        let of = |base: usize| gains::over(rows, base, base + 1, measure, &settings.statistics);
        // The first row after `given` is `bm25` itself.
        of(0).into_iter().zip(std::iter::once(None).chain(of(1))).collect()
    };
    let (gains, others) = (over(&rows, NDCG), OTHERS.map(|measure| (measure, over(&rows, measure))));
    for (at, (row, (over_given, over_bm25))) in rows[1..].iter_mut().zip(gains).enumerate() {
        (row.over_given, row.over_bm25) = (over_given, over_bm25);
        row.others = others
            .iter()
            .map(|(measure, gains)| {
                let (over_given, over_bm25) = gains[at].clone();
                OtherGains { measure: *measure, over_given, over_bm25 }
            })
            .collect();
    }
    variants_compared(settings, &mut rows);
    let ranked = rows[0].of(NDCG).iter().flatten().count();
    let mut own: Vec<Row> = rows.iter().filter(|row| row.frame().is_none()).cloned().collect();
    if settings.concurrency > 1 {
        // A request's wait for others is not the time of its method.
        own.iter_mut().filter_map(|row| row.measures.get_mut(SECONDS)).for_each(|seconds| seconds.value = None);
    }
    let verdict = verdict::of(&own, (ranked, asked.len()), &settings.statistics);
    let passages = asked.iter().map(|(question, _)| question.list.passages.len()).sum();
    let level = 1.0 - settings.statistics.confidence;
    let (prompts, scorer) =
        (prompts::verdict(&rows, &settings.frames, level), scorer::verdict(&rows, &settings.statistics));
    let names = rows.iter().map(|row| row.name.as_str());
    let warnings = |row| {
        let outcomes = asked.iter().filter_map(|(_, rows)| rows.get(row));
        warned::of(row, outcomes.map(|outcome| outcome.warnings.as_slice()))
    };
    let warned = names.flat_map(warnings).collect();
    let concurrency = settings.concurrency;
    Group { name, questions: asked.len(), ranked, passages, rows, verdict, prompts, scorer, warned, concurrency }
}

/// Effects of other prompts and another scoring model on each method: one family of tests.
fn variants_compared(settings: &Settings, rows: &mut [Row]) {
    let place = |name: &str| rows.iter().position(|row| row.name == name);
    let pairs = settings.rows().filter_map(|row| place(&row.base()?).zip(place(&row.name())));
    let pairs: Vec<(usize, usize)> = pairs.collect();
    let compared: Vec<Compared> = pairs
        .par_iter()
        .map(|(base, own)| gains::compare(&rows[*base], &rows[*own], NDCG, &settings.statistics))
        .collect();
    let adjusted = holm_of(&compared.iter().map(|one| one.p_value).collect::<Vec<_>>());
    for (((_, own), one), adjusted) in pairs.iter().zip(&compared).zip(adjusted) {
        rows[*own].over_base = (one.wins + one.ties + one.losses > 0).then(|| Gain::new(one, adjusted));
    }
}

/// Measures of one ranking, as the first of [`MEASURES`](super::row::MEASURES).
fn ranking_measures(question: &Question, order: &[usize], threshold: f64) -> [Option<f64>; OF_RANKINGS] {
    let labels = &question.list.labels;
    let found = labels.iter().filter(|label| **label >= threshold).count();
    if found == 0 {
        // The retriever missed every relevant passage of the collection, or there is none.
        let missed = question.list.relevant.filter(|relevant| *relevant > 0).map(|_| 0.0);
        return [None, missed, missed, missed, missed];
    }
    let ranked: Vec<f64> = order.iter().filter_map(|&index| labels.get(index).copied()).collect();
    let listed = Ranking::of_labels(&ranked);
    // Relevant passages that the retriever missed. Their labels are unknown, so the least whole label is assumed.
    let missed = question.list.relevant.map_or(0, |relevant| relevant.saturating_sub(found));
    let judged = [ranked.clone(), vec![threshold.max(1.0); missed]].concat();
    let all = Ranking::new(ranked.iter().copied().map(Some).collect(), judged);
    let value = |kind: Kind, cutoff: Option<usize>, ranking: &Ranking| {
        let metric = Metric { kind, cutoff, rel: None, judged_only: false };
        metric.of(ranking, Grading { threshold, graded: false })
    };
    let ndcg = Kind::Ndcg { exponential: false, within_list: false };
    [
        value(ndcg, Some(10), &listed),
        question.list.relevant.and_then(|_| value(ndcg, Some(10), &all)),
        value(Kind::Rr, None, &listed),
        value(Kind::R, Some(3), &all),
        value(Kind::R, Some(5), &all),
    ]
}

fn row(settings: &Settings, name: &str, asked: &[Asked<'_>]) -> Row {
    let statistics = &settings.statistics;
    let outcome = |asked: &Asked<'_>| asked.1.get(name).cloned();
    let outcomes: Vec<Option<Outcome>> = if name == GIVEN {
        let given = |asked: &Asked<'_>| (0..asked.0.list.passages.len()).collect();
        asked.iter().map(|one| Some(Outcome { ranking: given(one), ..Outcome::default() })).collect()
    } else {
        asked.iter().map(outcome).collect()
    };
    let refused = outcomes.iter().flatten().filter(|outcome| outcome.error.is_some()).count();
    let answered: Vec<Option<&Outcome>> =
        outcomes.iter().map(|outcome| outcome.as_ref().filter(|outcome| outcome.error.is_none())).collect();
    let measured: Vec<[Option<f64>; OF_RANKINGS]> = asked
        .iter()
        .zip(&answered)
        .map(|((question, _), outcome)| {
            outcome
                .map_or([None; OF_RANKINGS], |outcome| ranking_measures(question, &outcome.ranking, settings.threshold))
        })
        .collect();
    let column = |at: usize| measured.iter().map(|values| values[at]).collect::<Vec<_>>();
    let cost = |of: fn(&Outcome) -> f64| answered.iter().map(|outcome| outcome.map(of)).collect::<Vec<_>>();
    let tokens = cost(|outcome| number(outcome.tokens));
    let by_question: Vec<Vec<Option<f64>>> = (0..OF_RANKINGS).map(column).collect();
    let mut measures: Vec<Mean> = by_question.iter().map(|values| mean_of(values, statistics)).collect();
    measures.push(median_of(&tokens.iter().flatten().copied().collect::<Vec<_>>(), statistics));
    measures.push(mean_of(&tokens, statistics));
    measures.push(mean_of(cost(|outcome| number(outcome.naive_tokens)), statistics));
    measures.push(mean_of(cost(|outcome| number(outcome.other_tokens)), statistics));
    measures.push(mean_of(cost(|outcome| outcome.seconds), statistics));
    let beside: Vec<_> = asked.iter().map(|one| one.0).zip(answered.iter().copied()).collect();
    let quality = quality::of(&beside, settings);
    let calibrated = outcomes.iter().flatten().any(|outcome| outcome.calibrated);
    Row { measures, quality, calibrated, refused, by_question, ..Row::named(name) }
}

fn number(tokens: u64) -> f64 {
    real(usize::try_from(tokens).unwrap_or(usize::MAX))
}

fn median_of(values: &[f64], statistics: &Statistics) -> Mean {
    let median = |mut drawn: Vec<f64>| {
        drawn.sort_by(f64::total_cmp);
        let (below, above) = (drawn.get(drawn.len().saturating_sub(1) / 2)?, drawn.get(drawn.len() / 2)?);
        Some(f64::midpoint(*below, *above))
    };
    let resampled = |indices: &[usize]| median(indices.iter().map(|&index| values[index]).collect());
    let interval = statistics.intervals().and_then(|how| interval(values.len(), how, &never, resampled));
    Mean::new(median(values.to_vec()), interval, values.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use files::labelled::LabelledList;

    #[test]
    fn measures_by_hand() {
        let list = LabelledList { labels: vec![0.0, 1.0, 0.0, 1.0], relevant: Some(4), ..LabelledList::default() };
        let question = Question { list, ..Question::default() };
        let discount = |rank: f64| 1.0 / (rank + 1.0).log2();
        let (second, fourth) = (discount(2.0), discount(4.0));
        let ideal = |relevant: u8| (1..=relevant).map(|rank| discount(f64::from(rank))).sum::<f64>();
        let expected = [(second + fourth) / ideal(2), (second + fourth) / ideal(4), 0.5, 0.25, 0.5];
        let found = ranking_measures(&question, &[0, 1, 2, 3], 0.5);
        for (one, expected) in found.iter().zip(expected) {
            assert!((one.unwrap() - expected).abs() < 1e-12, "{found:?}");
        }
        // Without the collection's count, recall divides by the list's, and nDCG of all judged is undefined.
        let list = LabelledList { relevant: None, ..question.list };
        let found = ranking_measures(&Question { list, ..Question::default() }, &[1, 3, 0, 2], 0.5);
        assert_eq!(found, [Some(1.0), None, Some(1.0), Some(1.0), Some(1.0)]);
        // A list without relevant passages counts 0 if the collection has some.
        let without = |relevant: Option<usize>| {
            let list = LabelledList { labels: vec![0.0; 4], relevant, ..LabelledList::default() };
            ranking_measures(&Question { list, ..Question::default() }, &[0, 1, 2, 3], 0.5)
        };
        assert_eq!(without(Some(4)), [None, Some(0.0), Some(0.0), Some(0.0), Some(0.0)]);
        assert_eq!((without(Some(0)), without(None)), ([None; OF_RANKINGS], [None; OF_RANKINGS]));
    }

    #[test]
    fn medians_by_hand() {
        let statistics = Statistics { resamples: 0, ..Statistics::default() };
        assert_eq!(median_of(&[3.0, 1.0, 10.0], &statistics).value, Some(3.0));
        assert_eq!(median_of(&[4.0, 1.0, 2.0, 10.0], &statistics).value, Some(3.0));
        assert_eq!(median_of(&[], &statistics).value, None);
    }
}
