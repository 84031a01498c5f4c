//! Utility of compressed passages (Dai et al., *SePer*, Fig. 5 (b), section 5.4).
//!
//! The first passages of a list are a context in three forms: whole, compressed to three quarters, half and a quarter
//! of their tokens by each method, and without the last ones, which costs nothing. DeltaSePer of each is SePer in the
//! context minus SePer without passages. All contexts of a question draw the same random numbers. The reference
//! answer's log-likelihood is measured, too, because it has no sampling error.

use serde::{Deserialize, Serialize};

use super::readings::{Side, UNJUDGED, side};
use super::sampled::{self, Both, Kind};
use super::{About, Analysis, Answer, Asking, Context, Need, Settings, kept, values};
use crate::study::StudyError;
use crate::study::backend::Refusal;
use crate::study::chart::{self, Axes, Point, Series};
use crate::study::data::Question;
use crate::study::mean::{Mean, mean_of};
use crate::study::report::{Report, Table};
use engine::methods;
use engine::types::{Compression, CompressionMethod, ContextOrder, Passage, RerankRequest, UtilityRequest};
use numeric::real;
use protocol::v1;

/// Shares of the tokens to keep.
const RATIOS: [f64; 3] = [0.75, 0.5, 0.25];

/// The baseline: the fewest of the first passages that hold a share of the tokens.
const DROPPED: &str = "last passages dropped";

/// See the module.
pub(super) struct UtilityOfCompression;

/// A context: whole, or compressed by a method at a ratio.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Shortened {
    /// Empty for whole passages, [`DROPPED`], or the compression's name.
    method: String,
    /// 1 for whole passages.
    ratio: f64,
    /// Tokens of the texts, without titles.
    tokens: usize,
    delta: Both,
    /// log P(first reference | context, question) in nats.
    likelihood: Option<f64>,
}

impl Analysis for UtilityOfCompression {
    fn about(&self) -> About {
        About::new(
            "utility-of-compression",
            "Utility of compressed passages (SePer, Fig. 5 b)",
            &[Need::References, Need::Entailment, Need::Task],
        )
    }

    fn ask<'a>(&'a self, question: &'a Question, context: &'a Context<'a>) -> Asking<'a> {
        Box::pin(async move {
            let whole = context.passages(question);
            let row = |method: &str, ratio: f64, tokens: usize| Shortened {
                method: method.to_owned(),
                ratio,
                tokens,
                ..Shortened::default()
            };
            let (mut contexts, mut rows, mut lengths) = (vec![whole.clone()], vec![row("", 1.0, 0)], Vec::new());
            for compressor in CompressionMethod::ALL {
                for ratio in RATIOS {
                    let short = compressed(question, context, &whole, (compressor, ratio)).await?;
                    // The method `retriever` reads nothing, so its answer does not report cuts.
                    if compressor == CompressionMethod::LongLlmLingua {
                        lengths = short.read;
                    }
                    rows.push(row(compressor.name(), ratio, short.left));
                    contexts.push(short.passages);
                }
            }
            rows[0].tokens = lengths.iter().sum();
            for ratio in RATIOS {
                let first = within(&lengths, ratio);
                rows.push(row(DROPPED, ratio, lengths[..first].iter().sum()));
                contexts.push(whole[..first].to_vec());
            }
            // One call each: all contexts of a list in one call would exceed the limit on passages.
            for (row, short) in rows.iter_mut().zip(contexts) {
                let subsets = vec![(0..short.len()).collect()];
                // If all passages were dropped, the context is empty, but a request needs passages.
                let passages = if short.is_empty() { whole.clone() } else { short };
                let asked = sampled::request(question, context, passages);
                let request = UtilityRequest { subsets, score_references: true, ..asked };
                let answer = context.backend.client.utility(&request, false).await?;
                let missing = || Refusal::Question("a context was not measured".to_owned());
                let measured = answer.utilities.first().ok_or_else(missing)?;
                row.delta = Both::delta(measured);
                row.likelihood = measured.reference_log_likelihoods.first().copied();
            }
            kept(rows)
        })
    }

    fn report(&self, answers: &[Answer<'_>], settings: &Settings) -> Result<Report, StudyError> {
        let questions: Vec<Vec<Shortened>> = values(answers)?;
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
            let name = kind.name();
            let caption = format!("DeltaSePer ({name}) by the share of kept tokens");
            let axes = Axes::new(caption, "share of tokens kept", "DeltaSePer");
            report.charts.push(chart::lines(axes, &series(&rows, kind))?);
            let caption = format!("DeltaSePer ({name}) of the passages, {} questions", answers.len());
            let cells = |report: &mut Report, row: &Row| {
                let figure = row.name();
                let value = report.number(format!("{figure}, {name}, DeltaSePer"), "probability", *row.delta(kind));
                let less = row.difference(kind);
                [
                    Some(value),
                    less.map(|mean| report.number(format!("{figure}, {name}, less whole"), "probability", *mean)),
                ]
            };
            // Tokens are figures of the first table only.
            let table = table(&mut report, &rows, (caption, "DeltaSePer"), kind == Kind::Soft, cells);
            report.tables.push(table);
        }
        let caption = format!("Log-likelihood of the first reference in nats, {} questions", answers.len());
        let cells = |report: &mut Report, row: &Row| {
            let figure = row.name();
            let value = report.number(format!("{figure}, log P(reference)"), "nats", row.likelihood);
            let less = (!row.is_whole()).then_some(row.likelier);
            [
                Some(value),
                less.map(|mean| report.number(format!("{figure}, log P(reference), less whole"), "nats", mean)),
            ]
        };
        let table = table(&mut report, &rows, (caption, "log P(reference)"), false, cells);
        report.tables.push(table);
        report.notes.push(format!(
            "DeltaSePer is SePer with the passages less SePer without any, over {} answers of at most {} tokens each.",
            settings.samples,
            settings.answer_tokens()
        ));
        report.notes.push(
"Tokens are those of the texts, without titles. Ratios are shares of the tokens that are read; the column \"share\" is what remained. Passages stay in the retriever's order; LongLLMLingua ranks them to distribute its tokens."
                .to_owned(),
        );
        Ok(report)
    }
}

/// One row per context: its tokens, which become figures if `first`, a measure, and that minus the whole passages'.
fn table(
    report: &mut Report,
    rows: &[Row],
    (caption, measure): (String, &str),
    first: bool,
    cells: impl Fn(&mut Report, &Row) -> [Option<String>; 2],
) -> Table {
    let none = || "–".to_owned();
    let mut row = |row: &Row| {
        let figure = row.name();
        let tokens =
            if first { report.number(format!("{figure}, tokens"), "tokens", row.tokens) } else { row.tokens.cell(3) };
        let share = row.share.map_or_else(none, |share| format!("{share:.2}"));
        let [value, less] = cells(report, row).map(|cell| cell.unwrap_or_else(none));
        vec![figure, tokens, share, value, less]
    };
    let rows = rows.iter().map(&mut row).collect();
    let head = ["context", "tokens", "share", measure, "less whole passages"];
    Table::new(caption, head, rows)
}

/// A context after a compression.
struct Compressed {
    /// Tokens of each text in the prompt, in the first-stage order.
    read: Vec<usize>,
    /// Tokens that remain of them.
    left: usize,
    /// In the first-stage order, without dropped passages.
    passages: Vec<Passage>,
}

/// Compresses the passages.
async fn compressed(
    question: &Question,
    context: &Context<'_>,
    whole: &[Passage],
    (compressor, ratio): (CompressionMethod, f64),
) -> Result<Compressed, Refusal> {
    // LongLLMLingua needs its own ranking (its r_k). Selective-Context does not rank.
    let ranked = if compressor == CompressionMethod::LongLlmLingua { compressor.name() } else { "retriever" };
    let request = RerankRequest {
        method: methods::find(ranked),
        context_order: ContextOrder::Input,
        compression: Some(Compression { ratio: Some(ratio), ..Compression::by(compressor) }),
        ..context.rerank_request(question, whole.to_vec())
    };
    let answer = context.backend.client.rerank(&request).await?;
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
    Ok(Compressed { read: read(report, &answer.results, whole.len()), left, passages })
}

/// Number of first texts that hold at least this share of all tokens.
fn within(lengths: &[usize], share: f64) -> usize {
    let enough = share * real(lengths.iter().sum::<usize>());
    let held = lengths.iter().scan(0, |held, length| {
        *held += length;
        Some(real(*held))
    });
    held.take_while(|held| *held < enough).count().saturating_add(1).min(lengths.len())
}

/// Tokens of each text in the prompt, without those cut to fit. A bound on the tokens of a passage also covers its
/// title and prompt format, so it does not give the number for the text.
fn read(report: &v1::CompressionReport, ranked: &[v1::RankedPassage], texts: usize) -> Vec<usize> {
    let cut = |index: u32| ranked.iter().find(|one| one.original_index == index).map_or(0, |one| one.tokens_cut);
    let tokens = |one: &v1::CompressedPassage| one.tokens_before.saturating_sub(cut(one.original_index));
    let mut lengths = vec![0; texts];
    for one in &report.passages {
        let place = usize::try_from(one.original_index).ok().and_then(|index| lengths.get_mut(index));
        if let Some(length) = place {
            *length = usize::try_from(tokens(one)).unwrap_or(usize::MAX);
        }
    }
    lengths
}

/// A context over all questions.
struct Row {
    method: String,
    ratio: f64,
    tokens: Mean,
    /// Tokens divided by those of the whole passages, over all questions.
    share: Option<f64>,
    /// Soft, hard.
    deltas: [Mean; 2],
    /// Minus the whole passages', paired by question.
    differences: [Mean; 2],
    likelihood: Mean,
    /// Minus the whole passages'.
    likelier: Mean,
}

impl Row {
    fn new(questions: &[Vec<Shortened>], at: usize, settings: &Settings) -> Self {
        let of = |value: &dyn Fn(&[Shortened]) -> Option<f64>| {
            mean_of(questions.iter().map(|rows| value(rows)), &settings.statistics)
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
            likelihood: of(&|rows| rows.get(at)?.likelihood),
            likelier: of(&|rows| Some(rows.get(at)?.likelihood? - rows.first()?.likelihood?)),
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

/// One line per method, ending at the whole passages.
fn series(rows: &[Row], kind: Kind) -> Vec<Series> {
    let point = |row: &Row| Point::of(row.share?, row.delta(kind));
    let mut methods: Vec<&str> = rows.iter().filter(|row| !row.is_whole()).map(|row| row.method.as_str()).collect();
    methods.dedup();
    let line = |method: &str| {
        let of_it = rows.iter().filter(|row| row.is_whole() || row.method == method);
        let mut points: Vec<Point> = of_it.filter_map(point).collect();
        points.sort_by(|left, right| left.x.total_cmp(&right.x));
        Series { name: method.to_owned(), points }
    };
    methods.into_iter().map(line).collect()
}

/// The shortest context that is not worse than the whole passages beyond the error, and the contexts that are.
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
mod tests;
