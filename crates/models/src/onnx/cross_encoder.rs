//! A cross-encoder: query and passage in, one logit out.

use ort::session::SessionOutputs;
use rayon::prelude::*;

use super::PassageSettings;
use super::encoder::{Encoder, ids};
use super::labels::in_order;
use crate::passages::{Head, shorten, shorten_query};
use prefix_scheduler::model::ModelError;
use prefix_scheduler::model::reranker::{Encoded, Reranker, RerankerInfo, Shortening, TextError};

pub(super) struct CrossEncoder {
    encoder: Encoder,
    /// Index of the output that holds the logits.
    output: usize,
    head: Head,
    info: RerankerInfo,
}

impl CrossEncoder {
    pub fn load(settings: &PassageSettings) -> Result<Self, ModelError> {
        let unusable = |problem: String| ModelError::Unusable { path: settings.network.display().to_string(), problem };
        let mut encoder = Encoder::load(settings)?;
        let output = encoder.outputs().iter().position(|name| name == "logits").unwrap_or(0);
        let names = in_order(&encoder.config.id2label).map_err(unusable)?;
        // A network that cannot be evaluated is refused when it loads, not at the first request.
        let probe = encoder.probe(true);
        let widths = encoder.run(&[&probe], |outputs, _| Ok(vec![rows(outputs, output, 1)?.1]));
        let width = widths.map_err(|error| unusable(error.to_string()))?.first().copied().unwrap_or(0);
        let (head, words) = Head::new(width, &names).map_err(unusable)?;
        let architecture = Some(&*encoder.config.model_type).filter(|name| !name.is_empty()).unwrap_or("encoder");
        let info = RerankerInfo {
            name: settings.name.clone(),
            sha256: settings.sha256.clone(),
            description: format!("{architecture}, ONNX"),
            output: words,
            most_tokens: encoder.most_tokens,
            batch: encoder.batch(),
        };
        Ok(Self { encoder, output, head, info })
    }
}

/// The logits of a batch, and their number per row.
fn rows(outputs: &SessionOutputs, output: usize, batch: usize) -> Result<(Vec<f32>, usize), String> {
    let (shape, logits) = outputs[output].try_extract_tensor::<f32>().map_err(|error| error.to_string())?;
    let first = shape.first().copied().and_then(|rows| usize::try_from(rows).ok());
    if shape.len() > 2 || first != Some(batch) || logits.is_empty() {
        return Err(format!("the output has shape {shape:?}, [{batch}, labels] expected"));
    }
    Ok((logits.to_vec(), logits.len() / batch))
}

impl Reranker for CrossEncoder {
    fn info(&self) -> RerankerInfo {
        self.info.clone()
    }

    /// A query may take three quarters of the tokens that the special tokens leave.
    fn query(&self, text: &str, truncate: bool) -> Result<Encoded, TextError> {
        let mut pieces = self.encoder.tokens(text)?;
        let unreadable = self.encoder.is_unreadable(text, &pieces);
        let available = self.encoder.most_tokens.saturating_sub(self.encoder.added(true)) * 3 / 4;
        let cut = shorten_query(&mut pieces, available, truncate)?;
        Ok(Encoded { ids: ids(&pieces), cut, unreadable, ..Encoded::default() })
    }

    fn passage(&self, query: &Encoded, text: &str, shortening: Shortening) -> Result<Encoded, TextError> {
        let mut pieces = self.encoder.tokens(text)?;
        let unreadable = self.encoder.is_unreadable(text, &pieces);
        let available = self.encoder.most_tokens.saturating_sub(self.encoder.added(true) + query.ids.len());
        let cut = shorten(&mut pieces, 0, available, shortening)?;
        Ok(Encoded { cut, unreadable, ..self.encoder.frame(&query.ids, Some(&ids(&pieces)))? })
    }

    fn passages(&self, query: &Encoded, texts: &[String], shortening: Shortening) -> Vec<Result<Encoded, TextError>> {
        texts.par_iter().map(|text| self.passage(query, text, shortening)).collect()
    }

    fn score(&mut self, _: &Encoded, passages: &[&Encoded]) -> Result<Vec<f64>, ModelError> {
        let (head, output) = (self.head, self.output);
        self.encoder.run(passages, |outputs, batch| {
            let (logits, width) = rows(outputs, output, batch.len())?;
            Ok(logits.chunks_exact(width).map(|row| head.score(row)).collect())
        })
    }
}
