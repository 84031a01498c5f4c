//! Compression of the returned passages, a stage after ranking ([`crate::compress`] has the formulas, `compressor` the prompts).

use std::sync::Arc;
use std::time::Instant;

use super::compressor::{Compressor, Text, longest};
use super::single_passage::SinglePassageScores;
use crate::compress::valued;
use crate::models::ServedGenerator;
use crate::types::{
    CompressedPassage, Compression, CompressionReport, EngineError, Limits, RerankRequest, Reranked, milliseconds,
};
use numeric::real;
use prefix_scheduler::call::{Call, Stage};

/// Warning of a compression that left no text.
pub(crate) const ALL_DROPPED: &str = "compression dropped every passage";

/// Share of the tokens to keep if the request sets none.
const RATIO: f64 = 0.5;

impl Reranked {
    /// True if the request asked for a compression that had nothing to read: its cost is not typical, so it is not
    /// learnt.
    pub(super) fn has_idle_compression(&self, request: &RerankRequest) -> bool {
        request.compression_reads() && self.compression.as_ref().is_some_and(|report| report.passages_read == 0)
    }
}

impl Compression {
    /// True if nothing would be dropped from any `returned` texts of these lengths in tokens.
    pub(super) fn keeps_all(&self, lengths: Vec<usize>, returned: usize) -> bool {
        !self.reads() || self.target_tokens.is_some_and(|target| target >= longest(lengths, returned))
    }

    /// The share of this many tokens to keep.
    pub(super) fn share(&self, tokens: usize) -> f64 {
        let target = self.target_tokens.map(|target| real(target) / real(tokens.max(1)));
        target.or(self.ratio).unwrap_or(RATIO).min(1.0)
    }
}

/// Tokenises the texts to compress for the generator that scores, so that the cost is known before any work. `None`
/// if the request does not ask for it.
pub(super) async fn compressor(
    call: &Call,
    limits: Limits,
    model: &Arc<ServedGenerator>,
    request: &RerankRequest,
) -> Result<Option<Compressor>, EngineError> {
    let Some(options) = request.compression else { return Ok(None) };
    let (model, request) = (Arc::clone(model), request.clone());
    let _timed = call.stage(Stage::Tokenise);
    let started = Instant::now();
    // It checks which passages are cached.
    let lane = model.scheduler.lane();
    let work = move |call: &Call| Compressor::new(call, model, limits, options, &request);
    let mut compressor = call.compute_in(lane, work).await?;
    compressor.tokenise_ms = milliseconds(started);
    Ok(Some(compressor))
}

/// Compresses the returned passages and adds the cost to their usage.
pub(super) async fn compress(
    call: &Call,
    compressor: Option<Compressor>,
    (request, alone): (&RerankRequest, SinglePassageScores),
    placed: &mut Reranked,
) -> Result<(), EngineError> {
    let Some(compressor) = compressor else { return Ok(()) };
    placed.usage.tokenise_ms += compressor.tokenise_ms;
    let compressor = Arc::new(compressor);
    let ranking: Vec<usize> = placed.passages.iter().map(|passage| passage.index).collect();
    let (target, read) = compressor.target(&ranking);
    let cut = ranking[..read].iter().filter(|&&index| compressor.passages[index].cut() > 0).count();
    let (mut scores, mut nodes, mut evaluated) = (Vec::new(), Vec::new(), 0);
    if read > 0 {
        let (plan, spared);
        (plan, nodes, spared) = compressor.plan(&ranking[..read], &alone);
        placed.usage.naive_tokens += plan.cost().naive_tokens + spared;
        // Selective-Context needs nothing if the ranking scored all passages.
        if !plan.is_empty() {
            let outcome = compressor.model.scheduler.run(Arc::new(plan), call, None).await?;
            placed.usage.add(&outcome);
            evaluated = outcome.tokens;
            scores = outcome.scores;
        }
    }
    let started = Instant::now();
    let _timed = call.stage(Stage::Fit);
    let (options, order) = (compressor.options, placed.arrangement.order.clone());
    let texts: Vec<String> = ranking.iter().map(|&index| request.passages[index].text.clone()).collect();
    let work = move |call: &Call| {
        // A target of all tokens needs no model.
        let whole = nodes.is_empty();
        let mut left: Vec<String> = if whole { texts.clone() } else { vec![String::new(); texts.len()] };
        let mut read = Vec::with_capacity(nodes.len());
        for (rank, nodes) in nodes.iter().enumerate() {
            call.check()?;
            let (before, after) = compressor.scores(ranking[rank], *nodes, &scores, &alone);
            let values = compressor.values(ranking[rank], before, after)?;
            let text = Text::new(&compressor, ranking[rank], &texts[rank]);
            let valued = valued(&text.units, &values);
            read.push((text, valued));
        }
        let unaligned = read.iter().filter(|(text, _)| !text.aligned).count();
        let chosen = compressor.chosen(&read, target);
        for (rank, ((text, _), kept)) in read.iter().zip(&chosen).enumerate() {
            left[rank] = text.left(kept);
        }
        let passage = |index: usize| {
            let rank = ranking.iter().position(|ranked| *ranked == index)?;
            let before = compressor.passages[index].body.len();
            let text = std::mem::take(&mut left[rank]);
            let after = match text.as_str() {
                "" => 0,
                same if same == texts[rank] => before,
                shorter => compressor.model.language.query(shorter).len(),
            };
            Some(CompressedPassage { index, text, tokens_before: before, tokens_after: after })
        };
        let passages: Vec<CompressedPassage> = order.into_iter().filter_map(passage).collect();
        Ok::<_, EngineError>((passages, unaligned))
    };
    let (passages, unaligned) = call.compute(work).await?;
    placed.usage.fit_ms += milliseconds(started);
    placed.warnings.extend(warnings(cut, unaligned, &passages));
    placed.compression = Some(CompressionReport {
        method: options.method,
        unit: options.unit(),
        passages,
        tokens_evaluated: evaluated,
        passages_read: read,
    });
    Ok(())
}

/// Warnings: how many passages were cut to fit, and how many could not be divided.
fn warnings(cut: usize, unaligned: usize, passages: &[CompressedPassage]) -> Vec<String> {
    let so_many =
        |number: usize| if number == 1 { "1 passage was".to_owned() } else { format!("{number} passages were") };
    let none = !passages.is_empty() && passages.iter().all(CompressedPassage::is_dropped);
    [
        (cut > 0).then(|| format!("{} cut to fit before compression", so_many(cut))),
        (unaligned > 0)
            .then(|| format!("{} compressed as one unit: the tokens do not spell the text", so_many(unaligned))),
        none.then(|| ALL_DROPPED.to_owned()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::CompressionMethod;

    fn problem(change: impl Fn(&mut Compression)) -> Option<String> {
        let mut options = Compression::by(CompressionMethod::LongLlmLingua);
        change(&mut options);
        options.check().err().map(|error| error.to_string())
    }

    #[test]
    fn what_cannot_be_followed_is_refused_with_its_field() {
        for ratio in [0.0, -0.5, 1.0001, f64::NAN, f64::INFINITY] {
            let named = problem(|options| options.ratio = Some(ratio)).unwrap();
            assert!(named.starts_with("compression.ratio: "), "{named}");
        }
        let both = problem(|options| (options.ratio, options.target_tokens) = (Some(0.5), Some(10))).unwrap();
        assert!(both.starts_with("compression.target_tokens: "), "{both}");
        for spread in [-0.1, 1.1, f64::NAN] {
            let named = problem(|options| options.ratio_spread = Some(spread)).unwrap();
            assert!(named.starts_with("compression.ratio_spread: "), "{named}");
        }
        let useless = |options: &mut Compression| {
            (options.method, options.ratio_spread) = (CompressionMethod::SelectiveContext, Some(0.1));
        };
        assert!(problem(useless).unwrap().starts_with("compression.ratio_spread: "));
        assert_eq!(problem(|options| options.ratio = Some(1.0)), None);
        assert_eq!(problem(|options| options.target_tokens = Some(1)), None);
    }

    #[test]
    fn nothing_is_read_where_nothing_can_be_dropped() {
        let all = Compression { ratio: Some(1.0), ..Compression::by(CompressionMethod::SelectiveContext) };
        assert!(all.keeps_all(vec![5, 5], 2) && !all.reads());
        let target =
            |tokens| Compression { target_tokens: Some(tokens), ..Compression::by(CompressionMethod::LongLlmLingua) };
        assert!(target(9).reads() && target(9).keeps_all(vec![3, 5, 4], 2), "whichever two are returned");
        assert!(!target(8).keeps_all(vec![3, 5, 4], 2));
        assert!(!Compression::by(CompressionMethod::LongLlmLingua).keeps_all(vec![3], 1));
    }

    #[test]
    fn a_caller_is_told_what_was_cut_and_what_could_not_be_divided() {
        let passage = |text: &str| CompressedPassage { index: 0, text: text.into(), tokens_before: 1, tokens_after: 0 };
        assert_eq!(warnings(0, 0, &[]), Vec::<String>::new());
        assert_eq!(warnings(0, 0, &[passage(""), passage("x")]), Vec::<String>::new());
        assert_eq!(warnings(1, 0, &[passage("x")]), ["1 passage was cut to fit before compression"]);
        let told = warnings(2, 1, &[passage("")]);
        assert_eq!(told.len(), 3);
        assert!(told[0].starts_with("2 passages were cut") && told[1].starts_with("1 passage was compressed as one"));
        assert_eq!(told[2], "compression dropped every passage");
    }

    #[test]
    fn a_target_is_a_share_of_at_most_all() {
        let options = Compression { target_tokens: Some(30), ..Compression::by(CompressionMethod::LongLlmLingua) };
        assert!((options.share(120) - 0.25).abs() < 1e-12);
        assert!((options.share(10) - 1.0).abs() < 1e-12);
        assert!((Compression::by(CompressionMethod::SelectiveContext).share(7) - RATIO).abs() < 1e-12);
    }
}
