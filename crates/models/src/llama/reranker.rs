//! Rerankers in GGUF files: llama.cpp evaluates a pair of query and passage and applies the classification head of the file (rank
//! pooling).
//!
//! llama.cpp aborts the process if an encoder gets more tokens than a physical batch holds. The batch is therefore as
//! large as the longest pair, and calls are filled up to it.

mod classifier;

use std::num::NonZeroU32;
use std::path::PathBuf;

use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::{LlamaContextParams, LlamaPoolingType};
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::LlamaModel;
use llama_cpp_2::model::params::LlamaModelParams;
use llama_cpp_2::token::LlamaToken;

use classifier::Kind;

use super::chat_template::MOST_BYTES;
use super::gguf::Header;
use super::vocabulary::{deep, is_byte_level, pieces};
use super::{backend, load};
use crate::passages::{shorten, shorten_query};
use prefix_scheduler::model::ModelError;
use prefix_scheduler::model::reranker::{Encoded, Reranker, RerankerInfo, Shortening, TextError};

/// Default number of pairs in a call.
const PAIRS: usize = 16;

/// Shortest context that leaves room for a query and a passage.
const LEAST_TOKENS: usize = 16;

/// Settings for loading a reranker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RerankerSettings {
    /// The GGUF file.
    pub path: PathBuf,
    /// Catalogue name or file name, as reported to callers.
    pub name: String,
    /// SHA-256 of the file, lower-case hexadecimal.
    pub sha256: String,
    /// Maximum number of tokens of a pair; the model's maximum if that is lower.
    pub most_tokens: usize,
    /// Threads that evaluate a call.
    pub threads: usize,
    /// Maximum number of pairs in a call; 0 for 16.
    pub batch: usize,
    /// Layers on the accelerator; ignored when the build supports none.
    pub gpu_layers: u32,
}

/// Loads the model, calls `serve` with it, and frees it when `serve` returns. Model and context stay on the calling thread.
///
/// # Errors
/// [`ModelError::Unusable`] for a file that is not a reranker or cannot be loaded.
pub fn with_reranker(settings: &RerankerSettings, serve: &mut dyn FnMut(&mut dyn Reranker)) -> Result<(), ModelError> {
    let params = LlamaModelParams::default().with_n_gpu_layers(settings.gpu_layers);
    let model = load(&settings.path, &params)?;
    serve(&mut LlamaReranker::new(&model, settings)?);
    Ok(())
}

/// The tokens around query and passage.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Frame {
    /// Before the first text, between the texts, after the second one.
    tokens: [Vec<u32>; 3],
    /// White space of the template around the query. It is tokenised together with the query.
    query: [String; 2],
    /// White space of the template around the passage.
    passage: [String; 2],
    /// True if the query comes first.
    query_first: bool,
}

impl Frame {
    /// Splits a template at `{query}` and `{document}`. White space around these is left to the texts, because words are
    /// tokenised with the space before them.
    fn of_template(template: &str, tokenise: impl Fn(&str) -> Vec<u32>) -> Result<Self, String> {
        let at = |place: &str| template.find(place).ok_or_else(|| format!("its rerank template has no {place}"));
        let (query, document) = (at("{query}")?, at("{document}")?);
        let query_first = query < document;
        let (first, second) = if query_first { ("{query}", "{document}") } else { ("{document}", "{query}") };
        let (before, rest) = template.split_once(first).unwrap_or_default();
        let (between, after) = rest.split_once(second).unwrap_or_default();
        let trailing = |part: &str| part[part.trim_end().len()..].to_owned();
        let leading = |part: &str| part[..part.len() - part.trim_start().len()].to_owned();
        // White space between the two belongs to the first text.
        let between_is_blank = between.trim().is_empty();
        let gap = if between_is_blank { String::new() } else { trailing(between) };
        let around_first = [trailing(before), leading(between)];
        let around_second = [gap, leading(after)];
        let tokens = [before.trim_end(), between.trim(), after.trim_start()].map(tokenise);
        let (query, passage) = if query_first { (around_first, around_second) } else { (around_second, around_first) };
        Ok(Self { tokens, query, passage, query_first })
    }

    fn len(&self) -> usize {
        self.tokens.iter().map(Vec::len).sum()
    }

    fn assemble(&self, query: &[u32], passage: &[u32]) -> Vec<u32> {
        let [before, between, after] = &self.tokens;
        let (first, second) = if self.query_first { (query, passage) } else { (passage, query) };
        [before, first, between, second, after].concat()
    }
}

struct LlamaReranker<'m> {
    model: &'m LlamaModel,
    context: LlamaContext<'m>,
    batch: LlamaBatch<'static>,
    pairs: usize,
    kind: Kind,
    frame: Frame,
    info: RerankerInfo,
}

/// Converts valid token numbers to unsigned integers.
fn plain(tokens: Vec<LlamaToken>) -> Vec<u32> {
    tokens.into_iter().filter_map(|token| u32::try_from(token.0).ok()).collect()
}

fn tokenise(model: &LlamaModel, text: &str, special: bool) -> Vec<u32> {
    let tokens = |text: &str| plain(model.vocab().tokenize(text.as_bytes(), false, special));
    // Texts of callers have no control tokens and may be long.
    if special {
        deep(text, || tokens(text))
    } else if is_byte_level(model) {
        pieces(text).into_iter().flat_map(tokens).collect()
    } else {
        tokens(text)
    }
}

/// `[BOS] query [EOS] [SEP] passage [EOS]`, each as the file's flags say; SEP if there is no EOS.
fn frame_of_flags(model: &LlamaModel) -> Frame {
    let vocabulary = model.vocab();
    let [bos, eos, sep] = [vocabulary.bos(), vocabulary.eos(), vocabulary.sep()];
    let end = if eos.0 < 0 { sep } else { eos };
    let wanted = |add: bool, token: LlamaToken| if add { plain(vec![token]) } else { Vec::new() };
    let ended = wanted(vocabulary.should_add_eos(), end);
    let between = [ended.clone(), wanted(vocabulary.should_add_sep(), sep)].concat();
    Frame {
        tokens: [wanted(vocabulary.should_add_bos(), bos), between, ended],
        query: Default::default(),
        passage: Default::default(),
        query_first: true,
    }
}

impl<'m> LlamaReranker<'m> {
    fn new(model: &'m LlamaModel, settings: &RerankerSettings) -> Result<Self, ModelError> {
        let unusable = |problem: String| ModelError::Unusable { path: settings.path.display().to_string(), problem };
        let narrow = |what: &str, value: usize| {
            i32::try_from(value).map_err(|_| unusable(format!("{what}: {value} given, at most {} allowed", i32::MAX)))
        };
        let header = Header::read(&settings.path).map_err(unusable)?;
        let architecture = model.meta_val_str("general.architecture").unwrap_or_default();
        let number = |key: &str| model.meta_val_str(key).ok().and_then(|text| text.parse::<usize>().ok());
        let token_types = number("tokenizer.ggml.token_type_count").unwrap_or(0);
        classifier::check(&architecture, token_types, |tensor| header.has(tensor)).map_err(unusable)?;
        let labels = header.strings(&format!("{architecture}.classifier.output_labels"));
        let outputs = usize::try_from(model.n_cls_out()).unwrap_or(usize::MAX);
        let (kind, output) = Kind::of(&architecture, outputs, &labels).map_err(unusable)?;
        let frame = match model.meta_val_str("tokenizer.chat_template.rerank") {
            Ok(template) if template.len() > MOST_BYTES => {
                return Err(unusable(format!(
                    "its rerank template has {} bytes, at most {MOST_BYTES} are read",
                    template.len()
                )));
            }
            Ok(template) => Frame::of_template(&template, |part| tokenise(model, part, true)).map_err(unusable)?,
            Err(_) => frame_of_flags(model),
        };
        let trained = number(&format!("{architecture}.context_length")).unwrap_or(usize::MAX);
        let most_tokens = settings.most_tokens.min(trained);
        if most_tokens < frame.len() + LEAST_TOKENS {
            let problem =
                format!("a pair may have {most_tokens} tokens, its prompt format alone takes {}", frame.len());
            return Err(unusable(problem));
        }
        // llama.cpp aborts the process if a batch cannot hold one output for every sequence.
        let pairs = if settings.batch == 0 { PAIRS } else { settings.batch }.min(most_tokens);
        let (size, threads) = (narrow("max_tokens", most_tokens)?, narrow("threads", settings.threads)?);
        let params = LlamaContextParams::default()
            .with_n_ctx(NonZeroU32::new(size.unsigned_abs()))
            .with_n_batch(size.unsigned_abs())
            .with_n_ubatch(size.unsigned_abs())
            .with_op_offload(settings.gpu_layers > 0)
            .with_n_seq_max(narrow("batch", pairs)?.unsigned_abs())
            .with_kv_unified(true)
            .with_embeddings(true)
            .with_pooling_type(LlamaPoolingType::Rank)
            .with_n_threads(threads)
            .with_n_threads_batch(threads)
            .with_no_perf(true);
        let context = model
            .new_context(backend()?, params)
            .map_err(|error| unusable(format!("cannot create a context of {most_tokens} tokens: {error}")))?;
        let info = RerankerInfo {
            name: settings.name.clone(),
            sha256: settings.sha256.clone(),
            description: format!("{architecture}, GGUF"),
            output,
            most_tokens,
            batch: pairs,
        };
        Ok(Self { model, context, batch: LlamaBatch::new(most_tokens, 1), pairs, kind, frame, info })
    }

    /// Tokens of a text, with the white space that the template has around it.
    fn tokens(&self, around: &[String; 2], text: &str) -> Vec<u32> {
        tokenise(self.model, &format!("{}{text}{}", around[0], around[1]), false)
    }

    /// Evaluates pairs that fit one call together.
    fn call(&mut self, pairs: &[&Encoded]) -> Result<Vec<f64>, ModelError> {
        let failed = |problem: String| ModelError::Decode(problem);
        self.batch.clear();
        for (sequence, pair) in (0_i32..).zip(pairs) {
            let token = |&id: &u32| i32::try_from(id).map(LlamaToken::new);
            let tokens = pair.ids.iter().map(token).collect::<Result<Vec<_>, _>>();
            let tokens = tokens.map_err(|error| failed(error.to_string()))?;
            self.batch.add_sequence(&tokens, sequence, true).map_err(|error| failed(error.to_string()))?;
        }
        if let Kind::Probabilities { .. } = self.kind {
            // `encode` would remove the causal mask and read the first token.
            let outcome = self.context.decode(&mut self.batch).map_err(|error| failed(error.to_string()));
            let scores = outcome.and_then(|()| self.read(pairs.len()));
            self.context.clear_kv_cache();
            scores
        } else {
            self.context.encode(&mut self.batch).map_err(|error| failed(error.to_string()))?;
            self.read(pairs.len())
        }
    }

    fn read(&self, pairs: usize) -> Result<Vec<f64>, ModelError> {
        let score = |(sequence, _): (i32, usize)| {
            let row = self.context.embeddings_seq_ith(sequence);
            row.map(|row| self.kind.score(row)).map_err(|error| ModelError::Decode(error.to_string()))
        };
        (0_i32..).zip(0..pairs).map(score).collect()
    }
}

impl Reranker for LlamaReranker<'_> {
    fn info(&self) -> RerankerInfo {
        self.info.clone()
    }

    /// A query may take three quarters of the tokens that the prompt format leaves.
    fn query(&self, text: &str, truncate: bool) -> Result<Encoded, TextError> {
        let mut ids = self.tokens(&self.frame.query, text);
        let available = self.info.most_tokens.saturating_sub(self.frame.len()) * 3 / 4;
        let cut = shorten_query(&mut ids, available, truncate)?;
        Ok(Encoded { ids, cut, ..Encoded::default() })
    }

    fn passage(&self, query: &Encoded, text: &str, shortening: Shortening) -> Result<Encoded, TextError> {
        let mut ids = self.tokens(&self.frame.passage, text);
        let available = self.info.most_tokens.saturating_sub(self.frame.len() + query.ids.len());
        let cut = shorten(&mut ids, 0, available, shortening)?;
        Ok(Encoded { ids: self.frame.assemble(&query.ids, &ids), cut, ..Encoded::default() })
    }

    fn score(&mut self, _: &Encoded, passages: &[&Encoded]) -> Result<Vec<f64>, ModelError> {
        let mut scores = Vec::with_capacity(passages.len());
        while let Some(&next) = passages.get(scores.len()) {
            if next.ids.is_empty() || next.ids.len() > self.info.most_tokens {
                let problem = format!("a pair of {} tokens, 1 to {} allowed", next.ids.len(), self.info.most_tokens);
                return Err(ModelError::Decode(problem));
            }
            let (mut tokens, rest) = (0, &passages[scores.len()..]);
            let fits = |pair: &&&Encoded| {
                tokens += pair.ids.len();
                !pair.ids.is_empty() && tokens <= self.info.most_tokens
            };
            let together = rest.iter().take(self.pairs).take_while(fits).count();
            scores.extend(self.call(&rest[..together])?);
        }
        Ok(scores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Vec<u32> {
        text.bytes().map(u32::from).collect()
    }

    #[test]
    fn a_template_is_split_at_its_two_places() {
        let frame = Frame::of_template("<q>: {query}\n<d>: {document}<end>\n\n", bytes).unwrap();
        assert_eq!(frame.tokens, [bytes("<q>:"), bytes("<d>:"), bytes("<end>\n\n")]);
        assert_eq!((&frame.query, &frame.passage), (&[" ".into(), "\n".into()], &[" ".into(), String::new()]));
        // A placeholder inside a caller's text is plain text.
        let query = bytes(" {document}\n");
        assert_eq!(frame.assemble(&query, &bytes(" x")), bytes("<q>: {document}\n<d>: x<end>\n\n"));
        let turned = Frame::of_template("{document} | {query}", bytes).unwrap();
        assert_eq!(turned.assemble(&bytes(" q"), &bytes("d ")), bytes("d | q"));
        let blank = Frame::of_template("{query} {document}", bytes).unwrap();
        assert_eq!((&blank.query[1], &blank.passage[0]), (&" ".to_owned(), &String::new()));
        assert!(Frame::of_template("{query}", bytes).unwrap_err().contains("{document}"));
    }
}
