//! What compressed passages do for the generator (Dai et al., *SePer*, Fig. 5 (b), section 5.4).
//!
//! The first passages of a list are a context whole, and compressed to three quarters, half and a quarter of their tokens by each
//! method. DeltaSePer of each is SePer in the context minus SePer without passages. All contexts of a question draw the same random
//! numbers.

use serde::{Deserialize, Serialize};

use super::readings::{Side, UNJUDGED, side};
use super::report::{Chart, Report, Table, cell};
use super::sampled::{self, Both, Kind};
use super::{Analysis, Answer, Asking, Context, Needs, Settings};
use crate::backend::Refusal;
use crate::compress::Method;
use crate::engine::methods;
use crate::engine::position_bias::ContextOrder;
use crate::engine::rerank::{Compression, Passage, RerankRequest};
use crate::engine::utility::UtilityRequest;
use crate::evaluation::EvaluationError;
use crate::evaluation::charts::{self, Axes, Estimate, Series};
use crate::evaluation::compare::data::Question;
use crate::evaluation::summary::{Mean, mean_of};
use crate::numeric::real;
use crate::rpc::v1;

/// Shares of the tokens that are kept.
const RATIOS: [f64; 3] = [0.75, 0.5, 0.25];

/// See the module.
pub(super) struct UtilityOfCompression;

/// A context: whole, or compressed by a method at a ratio.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Shortened {
    /// Empty for whole passages.
    method: String,
    /// 1 for whole passages.
    ratio: f64,
    /// Of the texts, without titles.
    tokens: usize,
    delta: Both,
}

impl Analysis for UtilityOfCompression {
    fn name(&self) -> &'static str {
        "utility-of-compression"
    }

    fn title(&self) -> &'static str {
        "What compressed passages are still worth (SePer, Fig. 5 b)"
    }

    /// Format 2 counted too many tokens of whole passages.
    fn format(&self) -> u32 {
        3
    }

    fn needs(&self) -> Needs {
        Needs { references: true, entailment: true, ..Needs::default() }
    }

    fn ask<'a>(&'a self, question: &'a Question, context: &'a Context<'a>) -> Asking<'a> {
        Box::pin(async move {
            let whole = context.passages(self, question);
            let row = |method: &str, ratio: f64, tokens: usize| Shortened {
                method: method.to_owned(),
                ratio,
                tokens,
                delta: Both::default(),
            };
            let (mut contexts, mut rows) = (vec![whole.clone()], vec![row("", 1.0, 0)]);
            for compressor in Method::ALL {
                for ratio in RATIOS {
                    let short = compressed(question, context, &whole, (compressor, ratio)).await?;
                    // The retriever's order reads nothing, so an answer with it does not say what was cut.
                    if compressor == Method::LongLlmLingua {
                        rows[0].tokens = short.read;
                    }
                    rows.push(row(compressor.name(), ratio, short.left));
                    contexts.push(short.passages);
                }
            }
            // A call each: all contexts of a list in one would exceed the passages that a request may have.
            for (row, short) in rows.iter_mut().zip(contexts) {
                let subsets = vec![(0..short.len()).collect()];
                // Nothing is left of a context whose passages were all dropped, but a request has passages.
                let passages = if short.is_empty() { whole.clone() } else { short };
                let request = UtilityRequest { subsets, ..sampled::request(question, context, passages) };
                let answer = context.backend.utility(&request, false).await?;
                let missing = || Refusal::Question("a context was not measured".to_owned());
                row.delta = Both::delta(answer.utilities.first().ok_or_else(missing)?);
            }
            sampled::kept(rows)
        })
    }

    fn report(&self, answers: &[Answer<'_>], settings: &Settings) -> Result<Report, EvaluationError> {
        let questions: Vec<Vec<Shortened>> = sampled::values(answers)?;
        let mut report = Report::default();
        let rows: Vec<Row> = questions
            .first()
            .map_or_else(Vec::new, |first| (0..first.len()).map(|at| Row::new(&questions, at, settings)).collect());
        report.verdict = verdict(&rows);
        for kind in Kind::ALL {
            if rows.iter().all(|row| row.delta(kind).questions == 0) {
                report.notes.push("The entailment model is two-way, so there is no hard DeltaSePer.".to_owned());
                continue;
            }
            let svg = charts::estimates(&series(&rows, kind), &Axes { x: "share of tokens kept", y: "DeltaSePer" })?;
            let name = kind.name();
            report
                .charts
                .push(Chart { caption: format!("DeltaSePer ({name}) by the share of tokens that is kept"), svg });
            let cells = |row: &Row| {
                let figure = row.name();
                let mut cells = vec![figure.clone()];
                cells.push(match kind {
                    Kind::Soft => report.number(format!("{figure}, tokens"), "tokens", row.tokens),
                    Kind::Hard => cell(&row.tokens),
                });
                cells.push(row.share.map_or_else(|| "–".to_owned(), |share| format!("{share:.2}")));
                cells.push(report.number(format!("{figure}, {name}, DeltaSePer"), "probability", *row.delta(kind)));
                cells.push(match row.difference(kind) {
                    None => "–".to_owned(),
                    Some(mean) => report.number(format!("{figure}, {name}, less whole"), "probability", *mean),
                });
                cells
            };
            let cells = rows.iter().map(cells).collect();
            report.tables.push(Table {
                caption: format!("DeltaSePer ({name}) of the passages, {} questions", answers.len()),
                head: ["context", "tokens", "share", "DeltaSePer", "less whole passages"].map(str::to_owned).to_vec(),
                rows: cells,
            });
        }
        report.notes.push(format!(
            "DeltaSePer is SePer with the passages less SePer without any, over {} answers of at most {} tokens each.",
            settings.samples,
            sampled::ANSWER_TOKENS
        ));
        report.notes.push(
"Tokens are those of the texts, without titles. Ratios are shares of the tokens that are read; the share says what was kept. Passages stay in the retriever's order; LongLLMLingua ranks them to share out its tokens."
                .to_owned(),
        );
        Ok(report)
    }
}

/// A context after a compression.
struct Compressed {
    /// Tokens of the texts that the ranking read.
    read: usize,
    /// Tokens that are left of them.
    left: usize,
    /// In the retriever's order, without those that were dropped.
    passages: Vec<Passage>,
}

/// The passages, compressed.
async fn compressed(
    question: &Question,
    context: &Context<'_>,
    whole: &[Passage],
    (compressor, ratio): (Method, f64),
) -> Result<Compressed, Refusal> {
    // LongLLMLingua needs its own ranking (its r_k). Selective-Context does not rank.
    let ranked = if compressor == Method::LongLlmLingua { compressor.name() } else { "retriever" };
    let request = RerankRequest {
        query: question.list.question.clone(),
        passages: whole.to_vec(),
        method: methods::find(ranked),
        context_order: ContextOrder::Given,
        compression: Some(Compression { ratio: Some(ratio), ..Compression::by(compressor) }),
        passage_tokens: context.settings.passage_tokens,
        ..RerankRequest::default()
    };
    let answer = context.backend.rerank(&request).await?;
    let missing = || Refusal::Question("the answer has no compression".to_owned());
    let report = answer.compression.as_ref().ok_or_else(missing)?;
    let left = report.passages.iter().filter(|passage| !passage.dropped);
    let passage = |one: &v1::CompressedPassage| {
        let given = usize::try_from(one.original_index).ok().and_then(|index| whole.get(index));
        given.map(|given| Passage { text: one.compressed_text.clone(), ..given.clone() })
    };
    let passages: Option<Vec<Passage>> = left.map(passage).collect();
    let passages =
        passages.ok_or_else(|| Refusal::Question("the answer compresses a passage that is not there".to_owned()))?;
    let left = usize::try_from(report.tokens_after).unwrap_or(usize::MAX);
    Ok(Compressed { read: read(report, &answer.results), left, passages })
}

/// Tokens of the texts that are read: those that were cut to fit are not. A bound on the tokens of a passage holds for its title
/// and its frame, too, so it does not say how many of its text are left.
fn read(report: &v1::CompressionReport, ranked: &[v1::RankedPassage]) -> usize {
    let cut = |index: u32| ranked.iter().find(|one| one.original_index == index).map_or(0, |one| one.tokens_cut);
    let tokens = |one: &v1::CompressedPassage| one.tokens_before.saturating_sub(cut(one.original_index));
    report.passages.iter().map(|one| usize::try_from(tokens(one)).unwrap_or(usize::MAX)).sum()
}

/// A context over all questions.
struct Row {
    method: String,
    ratio: f64,
    tokens: Mean,
    /// Tokens over those of the whole passages, of all questions together.
    share: Option<f64>,
    /// Soft, hard.
    deltas: [Mean; 2],
    /// Less the whole passages'; the same question's are subtracted.
    differences: [Mean; 2],
}

impl Row {
    fn new(questions: &[Vec<Shortened>], at: usize, settings: &Settings) -> Self {
        let of = |value: &dyn Fn(&[Shortened]) -> Option<f64>| {
            mean_of(&questions.iter().map(|rows| value(rows)).collect::<Vec<_>>(), &settings.statistics)
        };
        let tokens =
            |place: usize| questions.iter().filter_map(move |rows| Some(rows.get(place)?.tokens)).sum::<usize>();
        let (here, whole) = (real(tokens(at)), real(tokens(0)));
        let delta = |kind: Kind| of(&|rows| rows.get(at)?.delta.of(kind));
        let difference = |kind: Kind| of(&|rows| Some(rows.get(at)?.delta.of(kind)? - rows.first()?.delta.of(kind)?));
        let named = questions.iter().find_map(|rows| rows.get(at));
        Self {
            method: named.map_or_else(String::new, |one| one.method.clone()),
            ratio: named.map_or(1.0, |one| one.ratio),
            tokens: of(&|rows| Some(real(rows.get(at)?.tokens))),
            share: (whole > 0.0).then(|| here / whole),
            deltas: Kind::ALL.map(delta),
            differences: Kind::ALL.map(difference),
        }
    }

    fn is_whole(&self) -> bool {
        self.method.is_empty()
    }

    fn name(&self) -> String {
        if self.is_whole() { "whole passages".to_owned() } else { format!("{} at {}", self.method, self.ratio) }
    }

    const fn delta(&self, kind: Kind) -> &Mean {
        &self.deltas[kind as usize]
    }

    /// `None` for the whole passages.
    fn difference(&self, kind: Kind) -> Option<&Mean> {
        (!self.is_whole()).then(|| &self.differences[kind as usize])
    }
}

/// A line a method, which ends at the whole passages.
fn series(rows: &[Row], kind: Kind) -> Vec<Series> {
    let point = |row: &Row| {
        let mean = row.delta(kind);
        Some(Estimate { x: row.share?, y: mean.value?, bounds: mean.low.zip(mean.high) })
    };
    let mut methods: Vec<&str> = rows.iter().filter(|row| !row.is_whole()).map(|row| row.method.as_str()).collect();
    methods.dedup();
    let line = |method: &str| {
        let of_it = rows.iter().filter(|row| row.is_whole() || row.method == method);
        let mut points: Vec<Estimate> = of_it.filter_map(point).collect();
        points.sort_by(|left, right| left.x.total_cmp(&right.x));
        Series { name: method.to_owned(), points }
    };
    methods.into_iter().map(line).collect()
}

/// The shortest context that is not worse than the whole passages beyond the error, and what is lost beyond it.
fn verdict(rows: &[Row]) -> String {
    let Some(whole) = rows.first() else { return "There is nothing to compare.".to_owned() };
    let worse: Vec<&Row> = rows[1..].iter().filter(|row| sampled::below(&row.differences[0])).collect();
    let judged = |row: &&Row| matches!(side(&row.differences[0]), Side::Above | Side::Within);
    let shortest = rows[1..].iter().filter(judged);
    let shortest = shortest.min_by(|l, r| real_share(l).total_cmp(&real_share(r)));
    let gain = sampled::signed(whole.deltas[0].value);
    if rows[1..].iter().all(|row| side(&row.differences[0]) == Side::Unknown) {
        return format!(
            "Whole passages are worth {gain} soft DeltaSePer; what compression loses is in the table, {UNJUDGED}."
        );
    }
    let names: Vec<String> = worse.iter().map(|row| row.name()).collect();
    let lost = if names.is_empty() {
        "no compression is worth less beyond the error".to_owned()
    } else {
        format!("worth less beyond the error are {}", names.join(", "))
    };
    let kept = shortest.map_or_else(String::new, |row| {
        format!(
            "; the shortest of the others is {}, with {:.0} % of the tokens and {}",
            row.name(),
            100.0 * real_share(row),
            sampled::signed(row.deltas[0].value)
        )
    });
    format!("Whole passages are worth {gain} soft DeltaSePer; {lost}{kept}.")
}

fn real_share(row: &Row) -> f64 {
    row.share.unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::sampled::{bare_settings, figure};
    use super::*;
    use crate::metrics::resample::Statistics;

    fn context(method: &str, ratio: f64, tokens: usize, soft: f64) -> Shortened {
        Shortened { method: method.to_owned(), ratio, tokens, delta: Both { soft: Some(soft), hard: Some(soft / 2.0) } }
    }

    fn report(questions: &[[f64; 3]], resamples: usize) -> Report {
        let question = Question::default();
        let answer = |[whole, half, quarter]: &[f64; 3]| Answer {
            question: &question,
            value: json!([
                context("", 1.0, 200, *whole),
                context("s", 0.5, 90, *half),
                context("s", 0.25, 50, *quarter)
            ]),
        };
        let answers: Vec<Answer<'_>> = questions.iter().map(answer).collect();
        let statistics = Statistics { resamples, ..Statistics::default() };
        UtilityOfCompression.report(&answers, &Settings { statistics, ..bare_settings() }).unwrap()
    }

    #[test]
    fn differences_are_paired_with_the_whole_passages() {
        let report = report(&[[0.4, 0.4, 0.0], [0.2, 0.3, 0.1]], 0);
        let near = |name: &str, expected: f64| assert!((figure(&report, name) - expected).abs() < 1e-12, "{name}");
        near("whole passages, soft, DeltaSePer", 0.3);
        near("s at 0.5, soft, DeltaSePer", 0.35);
        near("s at 0.5, soft, less whole", 0.05);
        near("s at 0.25, hard, less whole", -0.125);
        near("s at 0.25, tokens", 50.0);
        assert_eq!(report.tables[0].rows[1][2], "0.45");
        assert_eq!(report.tables[0].rows[0][4], "–");
        assert_eq!(report.charts.len(), 2);
        assert!(report.verdict.ends_with("too few questions, or no interval, to judge it by."), "{}", report.verdict);
    }

    /// Ten equal questions: the intervals have no width.
    #[test]
    fn a_loss_beyond_the_error_is_said() {
        let report = report(&[[0.4, 0.4, 0.1]; 10], 100);
        assert_eq!(
            report.verdict,
            "Whole passages are worth +0.400 soft DeltaSePer; worth less beyond the error are s at 0.25; the shortest of the others \
             is s at 0.5, with 45 % of the tokens and +0.400."
        );
    }

    /// The bound of 64 tokens was taken for one of the text alone: 30 + 64, where title and frame leave 52 of the second text.
    #[test]
    fn whole_passages_count_with_the_tokens_that_are_read() {
        let passage = |original_index, tokens_before| v1::CompressedPassage {
            original_index,
            tokens_before,
            ..Default::default()
        };
        let ranked =
            |original_index, tokens_cut| v1::RankedPassage { original_index, tokens_cut, ..Default::default() };
        let report = v1::CompressionReport { passages: vec![passage(0, 30), passage(1, 100)], ..Default::default() };
        assert_eq!(read(&report, &[ranked(1, 48), ranked(0, 0)]), 82);
        assert_eq!(read(&report, &[ranked(1, 0), ranked(0, 0)]), 130, "nothing was cut");
    }
}
