//! Embedding models: the score is the cosine of the separately embedded query and passage.

use std::num::NonZeroUsize;
use std::path::Path;

use lru::LruCache;
use ort::session::SessionOutputs;
use rayon::prelude::*;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::PassageSettings;
use super::encoder::{Encoder, Piece, beside, ids, json};
use crate::catalog::Pooling;
use crate::passages::{shorten, shorten_query};
use prefix_scheduler::model::ModelError;
use prefix_scheduler::model::reranker::{Encoded, Reranker, RerankerInfo, Shortening, TextError, TokenStates};

const fn described(pooling: Pooling) -> &'static str {
    match pooling {
        Pooling::Mean => "mean pooling",
        Pooling::First => "first token",
        Pooling::Last => "last token",
    }
}

/// The relevant fields of sentence-transformers' `1_Pooling/config.json`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PoolingConfig {
    pooling_mode_cls_token: bool,
    pooling_mode_mean_tokens: bool,
    pooling_mode_lasttoken: bool,
    pooling_mode_max_tokens: bool,
    pooling_mode_mean_sqrt_len_tokens: bool,
    pooling_mode_weightedmean_tokens: bool,
}

impl PoolingConfig {
    /// The stated pooling; mean if the file states none.
    fn pooling(&self) -> Result<Pooling, String> {
        let supported = [
            (self.pooling_mode_mean_tokens, Pooling::Mean),
            (self.pooling_mode_cls_token, Pooling::First),
            (self.pooling_mode_lasttoken, Pooling::Last),
        ];
        let other = self.pooling_mode_max_tokens
            || self.pooling_mode_mean_sqrt_len_tokens
            || self.pooling_mode_weightedmean_tokens;
        let mut chosen = supported.into_iter().filter_map(|(on, pooling)| on.then_some(pooling));
        match (chosen.next(), chosen.next(), other) {
            (None, _, false) => Ok(Pooling::Mean),
            (Some(pooling), None, false) => Ok(pooling),
            _ => Err("the pooling must be one of mean, first token and last token".to_owned()),
        }
    }
}

/// A module of sentence-transformers' `modules.json`.
#[derive(Debug, Deserialize)]
struct Module {
    #[serde(rename = "type")]
    kind: String,
}

/// Refuses a model with an unsupported module, such as `Dense`: its scores would be wrong.
fn check_modules(modules: &[Module]) -> Result<(), String> {
    let name = |module: &Module| module.kind.rsplit('.').next().unwrap_or_default().to_owned();
    let other = modules.iter().map(name).find(|name| !["Transformer", "Pooling", "Normalize"].contains(&name.as_str()));
    match other {
        Some(name) => Err(format!("the module {name:?} is not supported: only Transformer, Pooling and Normalize are")),
        None => Ok(()),
    }
}

/// SHA-256 of a passage's tokens, so that a memory image does not contain the text.
type Key = [u8; 32];

fn key(passage: &Encoded) -> Key {
    let mut hash = Sha256::new();
    for id in &passage.ids {
        hash.update(id.to_le_bytes());
    }
    hash.finalize().into()
}

pub(super) struct Embedder {
    encoder: Encoder,
    /// Index of the output to read.
    output: usize,
    /// True if the network gives one vector per text instead of one per token.
    pooled: bool,
    pooling: Pooling,
    query_prefix: String,
    passage_prefix: String,
    /// The last embedded query. Its list is scored in several turns.
    last: Option<(Vec<u32>, Vec<f32>)>,
    /// Cached vectors of passages by the hash of their tokens; `None` without a cache.
    kept: Option<LruCache<Key, Vec<f32>>>,
    info: RerankerInfo,
}

impl Embedder {
    pub fn load(
        settings: &PassageSettings,
        (query_prefix, passage_prefix): (&str, &str),
        chosen: Option<Pooling>,
        cache_entries: usize,
    ) -> Result<Self, ModelError> {
        let unusable =
            |path: &Path, problem: String| ModelError::Unusable { path: path.display().to_string(), problem };
        let mut encoder = Encoder::load(settings)?;
        let path = beside(&settings.network, "modules.json");
        check_modules(&json::<Vec<Module>>(&path)?).map_err(|problem| unusable(&path, problem))?;
        let path = beside(&settings.network, "1_Pooling").join("config.json");
        let pooling = match chosen {
            Some(pooling) => pooling,
            None => json::<PoolingConfig>(&path)?.pooling().map_err(|problem| unusable(&path, problem))?,
        };
        let names = encoder.outputs();
        let named = |wanted: &str| names.iter().position(|name| name == wanted);
        let output = named("sentence_embedding").or(named("last_hidden_state")).or(named("token_embeddings"));
        let output = output.unwrap_or(0);
        // A network that cannot be evaluated is refused when it loads, not at the first request.
        let probe = encoder.probe(false);
        let pooled = encoder.run(&[&probe], |outputs, _| Ok(vec![is_pooled(outputs, output)?]));
        let pooled = pooled.map_err(|error| unusable(&settings.network, error.to_string()))?;
        let pooled = pooled.first() == Some(&true);
        if let Some(chosen) = chosen.filter(|_| pooled) {
            let (model, pooling) = (&settings.name, chosen.name());
            tracing::warn!(model, pooling, "the network gives one vector per text; the pooling is not used");
        }
        let how = if pooled { "pooled by the network" } else { described(pooling) };
        let architecture = Some(&*encoder.config.model_type).filter(|name| !name.is_empty()).unwrap_or("encoder");
        let info = RerankerInfo {
            name: settings.name.clone(),
            sha256: settings.sha256.clone(),
            description: format!("{architecture}, ONNX"),
            output: format!("cosine, {how}"),
            most_tokens: encoder.most_tokens,
            batch: encoder.batch(),
        };
        let (query_prefix, passage_prefix) = (query_prefix.to_owned(), passage_prefix.to_owned());
        let kept = NonZeroUsize::new(cache_entries).map(LruCache::new);
        Ok(Self { encoder, output, pooled, pooling, query_prefix, passage_prefix, last: None, kept, info })
    }

    /// Maximum number of tokens of a text.
    fn available(&self) -> usize {
        self.encoder.most_tokens.saturating_sub(self.encoder.added(false))
    }

    /// The tokens of a prefixed text, the number of tokens of the prefix, and true if the model cannot read the text.
    /// Truncation does not change the last.
    fn behind(&self, prefix: &str, text: &str) -> Result<(Vec<Piece>, usize, bool), TextError> {
        let pieces = self.encoder.tokens(&format!("{prefix}{text}"))?;
        let before = self.encoder.tokens(prefix)?.len();
        let unreadable = self.encoder.is_unreadable(text, pieces.get(before..).unwrap_or_default());
        Ok((pieces, before, unreadable))
    }

    /// Embeddings of length 1; of length 0 for a text without a direction. Single precision, so that cached and computed
    /// vectors are equal.
    fn embed(&mut self, texts: &[&Encoded]) -> Result<Vec<Vec<f32>>, ModelError> {
        let (output, pooling) = (self.output, self.pooling);
        self.encoder.run(texts, |outputs, batch| {
            let (width, rows) = rows(outputs, output, batch.len())?;
            let pooled = is_pooled(outputs, output)?;
            let pool = |(row, text): (&[f32], &&Encoded)| {
                let tokens: Vec<&[f32]> = row.chunks_exact(width).collect();
                let own = &tokens[..text.ids.len().clamp(1, tokens.len())];
                let vector = normalised(if pooled { pool(Pooling::First, own) } else { pool(pooling, own) });
                #[allow(clippy::cast_possible_truncation, reason = "the components are at most 1")]
                vector.into_iter().map(|x| x as f32).collect()
            };
            Ok(rows.zip(batch).map(pool).collect())
        })
    }
}

/// Width of a vector, and the vectors of each text, padding last.
fn rows<'a>(
    outputs: &'a SessionOutputs,
    output: usize,
    texts: usize,
) -> Result<(usize, std::slice::ChunksExact<'a, f32>), String> {
    let (shape, values) = outputs[output].try_extract_tensor::<f32>().map_err(|error| error.to_string())?;
    let stride = values.len() / texts.max(1);
    let width = shape.last().copied().and_then(|width| usize::try_from(width).ok()).unwrap_or(0);
    if values.is_empty() || width == 0 || stride * texts != values.len() || !stride.is_multiple_of(width) {
        return Err(format!("the output has shape {shape:?}, {texts} rows expected"));
    }
    Ok((width, values.chunks_exact(stride)))
}

/// True if an output has one vector per text instead of one per token.
fn is_pooled(outputs: &SessionOutputs, output: usize) -> Result<bool, String> {
    let (shape, _) = outputs[output].try_extract_tensor::<f32>().map_err(|error| error.to_string())?;
    match shape.len() {
        2 => Ok(true),
        3 => Ok(false),
        _ => Err(format!("the output has shape {shape:?}, [texts, tokens, width] expected")),
    }
}

/// Combines the vectors of a text's tokens, without padding, into one. `tokens` is not empty.
fn pool(pooling: Pooling, tokens: &[&[f32]]) -> Vec<f64> {
    let vector =
        |token: Option<&&[f32]>| token.map_or_else(Vec::new, |token| token.iter().map(|&x| f64::from(x)).collect());
    match pooling {
        Pooling::First => vector(tokens.first()),
        Pooling::Last => vector(tokens.last()),
        Pooling::Mean => {
            let mut sum = vector(tokens.first());
            for token in tokens.iter().skip(1) {
                for (total, &x) in sum.iter_mut().zip(*token) {
                    *total += f64::from(x);
                }
            }
            sum
        }
    }
}

fn cosine(query: &[f32], passage: &[f32]) -> f64 {
    query.iter().zip(passage).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
}

fn normalised(mut vector: Vec<f64>) -> Vec<f64> {
    let length = vector.iter().map(|x| x * x).sum::<f64>().sqrt();
    // A NaN stays, so that the request fails.
    if length != 0.0 {
        for x in &mut vector {
            *x /= length;
        }
    }
    vector
}

impl Reranker for Embedder {
    fn info(&self) -> RerankerInfo {
        self.info.clone()
    }

    fn query(&self, text: &str, truncate: bool) -> Result<Encoded, TextError> {
        let (mut pieces, _, unreadable) = self.behind(&self.query_prefix, text)?;
        let cut = shorten_query(&mut pieces, self.available(), truncate)?;
        Ok(Encoded { cut, unreadable, ..self.encoder.frame(&ids(&pieces), None)? })
    }

    fn passage(&self, _: &Encoded, text: &str, shortening: Shortening) -> Result<Encoded, TextError> {
        let (mut pieces, prefix, unreadable) = self.behind(&self.passage_prefix, text)?;
        let cut = shorten(&mut pieces, prefix, self.available(), shortening)?;
        Ok(Encoded { cut, unreadable, ..self.encoder.frame(&ids(&pieces), None)? })
    }

    fn passages(&self, query: &Encoded, texts: &[String], shortening: Shortening) -> Vec<Result<Encoded, TextError>> {
        texts.par_iter().map(|text| self.passage(query, text, shortening)).collect()
    }

    fn query_cost(&self, query: &Encoded) -> usize {
        query.ids.len()
    }

    fn score(&mut self, query: &Encoded, passages: &[&Encoded]) -> Result<Vec<f64>, ModelError> {
        let known = self.last.take().filter(|(ids, _)| *ids == query.ids);
        let vector = match known {
            Some((_, vector)) => vector,
            None => self.embed(&[query])?.pop().unwrap_or_default(),
        };
        let mut scores = vec![f64::NAN; passages.len()];
        let mut open = Vec::new();
        for (index, passage) in passages.iter().enumerate() {
            match self.kept.as_mut().and_then(|kept| kept.get(&key(passage))) {
                Some(known) => scores[index] = cosine(&vector, known),
                None => open.push(index),
            }
        }
        let texts: Vec<&Encoded> = open.iter().map(|&index| passages[index]).collect();
        for (&index, embedded) in open.iter().zip(self.embed(&texts)?) {
            scores[index] = cosine(&vector, &embedded);
            // A vector with a NaN fails this request and is not cached.
            if let Some(kept) = self.kept.as_mut().filter(|_| scores[index].is_finite()) {
                kept.put(key(passages[index]), embedded);
            }
        }
        self.last = Some((query.ids.clone(), vector));
        Ok(scores)
    }

    fn is_known(&self, passage: &Encoded) -> bool {
        self.kept.as_ref().is_some_and(|kept| kept.contains(&key(passage)))
    }

    fn states(&mut self, texts: &[&str]) -> Result<Vec<TokenStates>, ModelError> {
        if self.pooled {
            let problem = "its network pools the tokens itself and gives no vectors of tokens".to_owned();
            return Err(ModelError::Unusable { path: self.info.name.clone(), problem });
        }
        let frame = |text: &&str| {
            let mut pieces = self.encoder.tokens(text)?;
            let unreadable = self.encoder.is_unreadable(text, &pieces);
            pieces.truncate(self.available());
            let (encoded, own) = self.encoder.frame_own(&ids(&pieces))?;
            Ok((Encoded { unreadable, ..encoded }, own))
        };
        let framed: Result<Vec<_>, TextError> = texts.iter().map(frame).collect();
        let framed = framed.map_err(|error| ModelError::Decode(format!("a text cannot be tokenised: {error:?}")))?;
        let encoded: Vec<&Encoded> = framed.iter().map(|(encoded, _)| encoded).collect();
        let output = self.output;
        let states = self.encoder.run(&encoded, |outputs, batch| {
            let (width, rows) = rows(outputs, output, batch.len())?;
            Ok(rows.map(|row| (width, row.to_vec())).collect())
        })?;
        let own = states.into_iter().zip(&framed).map(|((width, values), (encoded, own)): ((usize, Vec<f32>), _)| {
            let values = values.get(own.start * width..own.end * width).map(<[f32]>::to_vec);
            let missing = || ModelError::Decode("the output has fewer vectors than tokens".into());
            Ok(TokenStates { width, values: values.ok_or_else(missing)?, unreadable: encoded.unreadable })
        });
        own.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pooling(text: &str) -> Result<Pooling, String> {
        serde_json::from_str::<PoolingConfig>(text).unwrap().pooling()
    }

    #[test]
    fn the_pooling_is_read_from_the_folder() {
        assert_eq!(pooling("{}"), Ok(Pooling::Mean));
        assert_eq!(pooling(r#"{"pooling_mode_cls_token":true,"word_embedding_dimension":384}"#), Ok(Pooling::First));
        assert_eq!(pooling(r#"{"pooling_mode_lasttoken":true}"#), Ok(Pooling::Last));
        assert!(pooling(r#"{"pooling_mode_max_tokens":true}"#).is_err());
        assert!(pooling(r#"{"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":true}"#).is_err());
    }

    #[test]
    fn modules_that_are_not_evaluated_are_refused() {
        let check = |text: &str| check_modules(&serde_json::from_str::<Vec<Module>>(text).unwrap());
        let module = |kind: &str| format!(r#"{{"idx": 0, "name": "0", "path": "", "type": "{kind}"}}"#);
        let [transformer, pooling, normalize, dense] = ["Transformer", "Pooling", "Normalize", "Dense"]
            .map(|kind| module(&format!("sentence_transformers.models.{kind}")));
        assert_eq!(check("[]"), Ok(()));
        assert_eq!(check(&format!("[{transformer}, {pooling}, {normalize}]")), Ok(()));
        assert!(check(&format!("[{transformer}, {pooling}, {dense}]")).unwrap_err().contains("\"Dense\""));
    }

    #[test]
    fn the_sum_stands_for_the_mean() {
        let tokens: [&[f32]; 2] = [&[3.0, 0.0], &[0.0, 4.0]];
        assert_eq!(normalised(pool(Pooling::Mean, &tokens)), vec![0.6, 0.8]);
        assert_eq!(pool(Pooling::First, &tokens), vec![3.0, 0.0]);
        assert_eq!(pool(Pooling::Last, &tokens), vec![0.0, 4.0]);
        assert_eq!(normalised(vec![0.0, 0.0]), vec![0.0, 0.0]);
        assert!(normalised(vec![f64::NAN, 1.0])[0].is_nan());
    }
}
