//! One entailment network: text pairs in, verdicts out.

use std::cell::OnceCell;

use ort::session::Session;
use tokenizers::{Encoding, Tokenizer, TruncationDirection, TruncationParams, TruncationStrategy};

use super::labels::{Labels, ModelConfig};
use super::session::{self, Row, Source};
use super::{Settings, environment, graft};
use prefix_scheduler::model::ModelError;
use prefix_scheduler::model::entailment::{Entailment, EntailmentInfo, EntailmentProbabilities, TextPair};

/// Pairs are batched by length, in buckets of this many tokens, so that little of a batch is padding.
const BUCKET: usize = 16;

/// Least tokens of a question if the answers fill the input, at most a quarter of the tokens that the hypothesis
/// leaves.
const LEAST_QUESTION: usize = 64;

pub(super) struct Network {
    /// A pair is too small to be split over threads, so each session evaluates its own pairs.
    sessions: Vec<Session>,
    tokenizer: Tokenizer,
    /// The tokenizer with truncation of the longer text first. Built for the first hypothesis that leaves no room for a
    /// premise.
    even: OnceCell<Tokenizer>,
    /// The tokenizer without truncation. Built for the first pair with a question that is too long.
    whole: OnceCell<Tokenizer>,
    labels: Labels,
    info: EntailmentInfo,
    batch: usize,
    pad: i64,
    /// True if the network has the input `token_type_ids`.
    typed: bool,
}

impl Network {
    pub fn load(settings: &Settings) -> Result<Self, ModelError> {
        let unusable = |problem: String| ModelError::Unusable { path: settings.network.display().to_string(), problem };
        let beside = |name: &str| settings.network.with_file_name(name);
        let environment = environment(&settings.library)?;
        let bytes = std::fs::read(&settings.network).map_err(|error| unusable(error.to_string()))?;
        let batch = session::batch(&bytes, settings.batch);
        let (head, weights) = graft::built_in().map_err(unusable)?;
        let (grafted, labels, most_tokens) = if head.network_sha256 == settings.sha256 {
            let labels = Labels::recognise(&head.labels).map_err(unusable)?;
            (Some(graft::graft(&bytes, &head, &weights).map_err(unusable)?), labels, 512)
        } else {
            let path = beside("config.json");
            let at = |problem: String| ModelError::Unusable { path: path.display().to_string(), problem };
            let text = std::fs::read_to_string(&path).map_err(|error| at(error.to_string()))?;
            let config: ModelConfig = serde_json::from_str(&text).map_err(|error| at(error.to_string()))?;
            (None, config.labels().map_err(at)?, config.max_tokens())
        };
        drop(bytes);
        let source = grafted.as_deref().map_or(Source::File(&settings.network), Source::Bytes);
        let sessions = session::sessions(&environment, settings.threads, &source, false).map_err(unusable)?;
        let typed = session::has_token_types(&sessions[0]).map_err(unusable)?;
        let (tokenizer, pad) = tokenizer(&beside("tokenizer.json"), most_tokens)?;
        let info = EntailmentInfo {
            name: settings.name.clone(),
            sha256: settings.sha256.clone(),
            three_way: labels.contradiction.is_some(),
            most_tokens,
        };
        let (even, whole) = (OnceCell::new(), OnceCell::new());
        let mut network = Self { sessions, tokenizer, even, whole, labels, info, batch, pad, typed };
        // A network that cannot be evaluated is refused when it loads, not at the first request.
        let probe = TextPair::new("It rains.", "It is wet.");
        network.judge(&[probe]).map_err(|error| unusable(error.to_string()))?;
        Ok(network)
    }

    /// Truncates a pair that is too long: first the beginning of its question, in both texts alike, then the end of its
    /// premise. The hypothesis is truncated only if it leaves no room for a premise.
    fn encode(&self, pair: &TextPair) -> Result<Encoding, ModelError> {
        let encoding = self.encode_texts(cut(&pair.premise), cut(&pair.hypothesis))?;
        if pair.question == 0 || encoding.len() < self.info.most_tokens {
            return Ok(encoding);
        }
        let parts = pair.premise.split_at_checked(pair.question).zip(pair.hypothesis.split_at_checked(pair.question));
        let ((question, premise), (_, hypothesis)) =
            parts.ok_or_else(|| ModelError::Decode("not a question".into()))?;
        self.encode_after(question, cut(premise.trim_start()), cut(hypothesis.trim_start()))
    }

    /// Puts the end of the question before both texts: as much as fits, but at least a little, for which the premise's
    /// end is cut.
    fn encode_after(&self, question: &str, premise: &str, hypothesis: &str) -> Result<Encoding, ModelError> {
        let whole = built_once(&self.whole, &self.tokenizer, None)?;
        let encode = |text: &str| whole.encode(text, false).map_err(failed);
        let question = cut_beginning(question);
        let tokens = encode(question)?;
        let hypothesis_tokens = encode(hypothesis)?.len();
        let rest = encode(premise)?.len() + hypothesis_tokens;
        // The premise gets half of the tokens that the hypothesis leaves.
        let little =
            (self.info.most_tokens.saturating_sub(hypothesis_tokens) / 4).min(LEAST_QUESTION).min(tokens.len());
        let mut kept = (self.info.most_tokens.saturating_sub(rest) / 2).min(tokens.len());
        let after = |kept: usize| {
            // The range of a token includes a leading space.
            let end = match kept {
                0 => "",
                kept => question[tokens.get_offsets()[tokens.len() - kept].0..].trim_start(),
            };
            [premise, hypothesis].map(|text| format!("{end} {text}").trim().to_owned())
        };
        while kept > little {
            let [premise, hypothesis] = after(kept);
            let pair = whole.encode((premise, hypothesis), true).map_err(failed)?;
            let over = pair.len().saturating_sub(self.info.most_tokens);
            if over == 0 {
                return Ok(pair);
            }
            kept = kept.saturating_sub(over.div_ceil(2));
        }
        let [premise, hypothesis] = after(little);
        self.encode_texts(&premise, &hypothesis)
    }

    fn encode_texts(&self, premise: &str, hypothesis: &str) -> Result<Encoding, ModelError> {
        self.tokenizer.encode((premise, hypothesis), true).or_else(|_| {
            let longest_first = TruncationParams {
                max_length: self.info.most_tokens,
                strategy: TruncationStrategy::LongestFirst,
                ..TruncationParams::default()
            };
            let even = built_once(&self.even, &self.tokenizer, Some(longest_first))?;
            even.encode((premise, hypothesis), true).map_err(failed)
        })
    }
}

#[expect(clippy::needless_pass_by_value, reason = "shaped for map_err")]
fn failed(error: tokenizers::Error) -> ModelError {
    ModelError::Decode(error.to_string())
}

/// A copy of a tokenizer with another truncation, built at its first use.
fn built_once<'a>(
    cell: &'a OnceCell<Tokenizer>,
    tokenizer: &Tokenizer,
    truncation: Option<TruncationParams>,
) -> Result<&'a Tokenizer, ModelError> {
    if let Some(built) = cell.get() {
        return Ok(built);
    }
    let mut other = tokenizer.clone();
    other.with_truncation(truncation).map_err(failed)?;
    Ok(cell.get_or_init(|| other))
}

/// Most bytes of a text that are tokenised, many times a model's maximum length. The pairs of a request repeat each text
/// many times, so a long one must not be tokenised completely for each.
const TOKENISED: usize = 64 << 10;

/// The part of a text that is tokenised: its beginning.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TOKENISED)]
}

/// The part of a question that is tokenised: its end.
fn cut_beginning(question: &str) -> &str {
    &question[question.ceil_char_boundary(question.len().saturating_sub(TOKENISED))..]
}

/// The parameters of a step that all sessions share.
#[derive(Clone, Copy)]
struct Shape {
    labels: Labels,
    pad: i64,
    typed: bool,
}

impl Shape {
    /// Evaluates one padded batch.
    fn step(self, session: &mut Session, encodings: &[&Encoding]) -> Result<Vec<EntailmentProbabilities>, ModelError> {
        let rows: Vec<Row> =
            encodings.iter().map(|row| Row { ids: row.get_ids(), types: row.get_type_ids() }).collect();
        let classes = self.labels.count();
        let logits = session::run(session, &rows, self.pad, self.typed, |outputs| {
            let (shape, logits) = outputs[0].try_extract_tensor::<f32>().map_err(|error| error.to_string())?;
            if logits.len() != rows.len() * classes {
                return Err(format!("the output has shape {shape:?}, {classes} classes expected"));
            }
            Ok(logits.to_vec())
        });
        let logits = logits.map_err(ModelError::Decode)?;
        logits.chunks_exact(classes).map(|row| verdict(row, self.labels)).collect()
    }
}

impl Entailment for Network {
    fn info(&self) -> EntailmentInfo {
        self.info.clone()
    }

    fn judge(&mut self, pairs: &[TextPair]) -> Result<Vec<EntailmentProbabilities>, ModelError> {
        let encodings = pairs.iter().map(|pair| self.encode(pair)).collect::<Result<Vec<_>, _>>()?;
        let mut order: Vec<usize> = (0..pairs.len()).collect();
        order.sort_by_key(|&index| encodings[index].len());
        let alike = |one: &usize, next: &usize| encodings[*one].len() / BUCKET == encodings[*next].len() / BUCKET;
        let steps: Vec<&[usize]> = order.chunk_by(alike).flat_map(|bucket| bucket.chunks(self.batch)).collect();
        let shape = Shape { labels: self.labels, pad: self.pad, typed: self.typed };
        let judged = session::in_parallel(&mut self.sessions, &steps, |session, step| {
            let rows: Vec<&Encoding> = step.iter().map(|&index| &encodings[index]).collect();
            shape.step(session, &rows)
        })?;
        let mut verdicts = vec![None; pairs.len()];
        for (&index, verdict) in steps.iter().copied().flatten().zip(judged.into_iter().flatten()) {
            verdicts[index] = Some(verdict);
        }
        verdicts
            .into_iter()
            .map(|verdict| verdict.ok_or_else(|| ModelError::Decode("a pair has no verdict".into())))
            .collect()
    }
}

/// Softmax over the classes.
fn verdict(logits: &[f32], labels: Labels) -> Result<EntailmentProbabilities, ModelError> {
    let normaliser = numeric::logspace::logsumexp(logits);
    let probability = |index: usize| (f64::from(logits[index]) - normaliser).exp();
    let verdict = EntailmentProbabilities {
        entailment: probability(labels.entailment),
        neutral: probability(labels.neutral),
        contradiction: labels.contradiction.map_or(0.0, probability),
    };
    if verdict.entailment.is_finite() && verdict.neutral.is_finite() && verdict.contradiction.is_finite() {
        return Ok(verdict);
    }
    Err(ModelError::Decode("an entailment probability is not finite".to_owned()))
}

fn tokenizer(path: &std::path::Path, most_tokens: usize) -> Result<(Tokenizer, i64), ModelError> {
    let unusable = |problem: String| ModelError::Unusable { path: path.display().to_string(), problem };
    let mut tokenizer = Tokenizer::from_file(path).map_err(|error| unusable(error.to_string()))?;
    let truncation = TruncationParams {
        max_length: most_tokens,
        strategy: TruncationStrategy::OnlyFirst,
        direction: TruncationDirection::Right,
        ..TruncationParams::default()
    };
    tokenizer.with_truncation(Some(truncation)).map_err(|error| unusable(error.to_string()))?;
    tokenizer.with_padding(None);
    let pad = ["[PAD]", "<pad>"].iter().find_map(|token| tokenizer.token_to_id(token)).unwrap_or(0);
    Ok((tokenizer, i64::from(pad)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_tokenised_in_part() {
        assert_eq!((cut("a\u{e9}"), cut("")), ("a\u{e9}", ""));
        let long = "\u{20ac}".repeat(TOKENISED);
        assert!(cut(&long).len() > TOKENISED - 3 && cut(&long).len() <= TOKENISED);
        assert_eq!((cut_beginning("a\u{e9}"), cut_beginning("")), ("a\u{e9}", ""));
        assert!(cut_beginning(&long).len() > TOKENISED - 3 && cut_beginning(&long).len() <= TOKENISED);
    }
}
