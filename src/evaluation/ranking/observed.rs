//! One list as a method answered it, to be mixed anew with any weight.

use crate::engine::fusing::{Fusion, FusionOptions, Source, WEIGHT, WEIGHT_BESIDE_EMBEDDING};
use crate::engine::methods::Stage;
use crate::engine::rerank::{Passage, RerankRequest, Reranked};
use crate::fusion::bm25;
use crate::metrics::rank::{Grading, Kind, Metric, Ranking};
use crate::numeric::{descending, real};

/// A list, its labels, and what the method said of it.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    /// The model's own utility of each passage.
    utilities: Vec<f64>,
    /// Whether a utility of 0 means "no better than no passage".
    has_zero: bool,
    /// What decided each passage's place: the generator reads all but those of the retriever.
    pub stages: Vec<Stage>,
    /// What one unit of the logit is.
    unit: f64,
    /// The retriever's side of the fusion; `None` for a method that does not fuse.
    retriever: Option<Fusion>,
    /// The cosine of each passage, where the method mixes in those of an embedding model.
    cosines: Option<Vec<f64>>,
    /// Query and texts, for BM25 of a part of the list.
    texts: (String, Vec<String>),
    /// Gains of nDCG.
    labels: Vec<f64>,
    /// Whether each passage is relevant.
    pub relevant: Vec<bool>,
}

impl Observed {
    /// `answer` ranks every passage of `request`. `cosines` are those that the method mixed in.
    pub fn new(
        request: &RerankRequest,
        answer: &Reranked,
        cosines: Option<Vec<f64>>,
        labels: &[f64],
        threshold: f64,
    ) -> Self {
        let n = request.passages.len();
        let (mut utilities, mut stages) = (vec![0.0; n], vec![Stage::Alone; n]);
        for passage in &answer.passages {
            utilities[passage.index] = passage.utility;
            stages[passage.index] = passage.stage;
        }
        Self {
            utilities,
            // Without a calibration, which this answer has not.
            has_zero: answer.none_helps.is_some(),
            stages,
            unit: answer.unit,
            retriever: answer.fusion.map(|_| Fusion::of(request)),
            cosines,
            texts: (request.query.clone(), request.passages.iter().map(Passage::whole_text).collect()),
            labels: labels.to_vec(),
            relevant: labels.iter().map(|label| *label >= threshold).collect(),
        }
    }

    /// The retriever's side of the fusion.
    pub fn source(&self) -> Option<Source> {
        self.retriever.as_ref().map(|fusion| fusion.report.source)
    }

    /// Whether the method mixed in the cosines of an embedding model.
    pub const fn has_cosines(&self) -> bool {
        self.cosines.is_some()
    }

    /// The list as the method mixes it where no embedding model can be asked.
    pub fn without_cosines(&self) -> Self {
        Self { cosines: None, ..self.clone() }
    }

    /// The model's share without a calibration.
    pub fn built_in(&self) -> f64 {
        if self.cosines.is_some() { WEIGHT_BESIDE_EMBEDDING } else { WEIGHT }
    }

    fn fusion(&self) -> Option<Fusion> {
        let retriever = self.retriever.clone()?;
        Some(match &self.cosines {
            Some(cosines) => retriever.with_embedding(cosines, &FusionOptions::default()),
            None => retriever,
        })
    }

    /// The value of each passage over the unit: the logit of the uncalibrated score. A passage that was not read has the
    /// lowest value of those that were, and not above 0, as in the server.
    pub fn logits(&self, weight: f64) -> Vec<f64> {
        let values = match self.fusion() {
            None => self.utilities.clone(),
            Some(fusion) => {
                let chosen: Vec<usize> =
                    (0..self.stages.len()).filter(|&index| self.stages[index] != Stage::Retriever).collect();
                let of = |values: &[f64]| -> Vec<f64> { chosen.iter().map(|&index| values[index]).collect() };
                let mut fusion = Fusion { scores: of(&fusion.scores), ..fusion };
                fusion.report.weight = weight;
                let (mixed, _) = fusion.values(&of(&self.utilities), self.has_zero, self.unit);
                let mut all = vec![mixed.iter().copied().fold(0.0, f64::min); self.stages.len()];
                for (&index, value) in chosen.iter().zip(mixed) {
                    all[index] = value;
                }
                all
            }
        };
        values.into_iter().map(|value| value / self.unit).collect()
    }

    /// Of the neighbours of which one is relevant and the other is not: how much the value of the first exceeds that of the second, at
    /// least 0, in the unit of the utilities, and whether the first is the relevant one. As in the server, what was settled
    /// together stays first, and what was not read is last, by what chose the others.
    pub fn neighbours(&self, weight: f64) -> Vec<(f64, bool)> {
        let logits = self.logits(weight);
        let free = self.fusion().map(|fusion| fusion.scores);
        let of_stage = |stage: Stage| {
            let kept = (0..logits.len()).filter(|&index| self.stages[index] == stage);
            let key = |index: usize| match (&free, stage) {
                (Some(free), Stage::Retriever) => free[index],
                _ => logits[index],
            };
            let mut kept: Vec<usize> = kept.collect();
            kept.sort_by(|&left, &right| key(right).total_cmp(&key(left)));
            kept
        };
        let order = [Stage::Together, Stage::Alone, Stage::Retriever].map(of_stage).concat();
        let told = |pair: &[usize]| {
            let (first, gap) = (self.relevant[pair[0]], (logits[pair[0]] - logits[pair[1]]) * self.unit);
            (first != self.relevant[pair[1]]).then_some((gap.max(0.0), first))
        };
        order.windows(2).filter_map(told).collect()
    }

    /// nDCG@10 within the list; `None` where no passage is relevant.
    pub fn ndcg(&self, weight: f64) -> Option<f64> {
        if !self.relevant.contains(&true) {
            return None;
        }
        let ranked: Vec<f64> = descending(&self.logits(weight)).into_iter().map(|index| self.labels[index]).collect();
        let kind = Kind::Ndcg { exponential: false, within_list: false };
        let metric = Metric { kind, cutoff: Some(10), rel: None, judged_only: false };
        metric.of(&Ranking::of_labels(&ranked), Grading { threshold: f64::MIN_POSITIVE, graded: false })
    }

    /// F1 of the first result, of the first two and so on, against all relevant passages of the list; `None` where there are none.
    pub fn f1_by_number(&self, weight: f64) -> Option<Vec<f64>> {
        let all = self.relevant.iter().filter(|relevant| **relevant).count();
        let mut found = 0;
        let f1 = |(place, index): (usize, usize)| {
            found += usize::from(self.relevant[index]);
            2.0 * real(found) / real(place + 1 + all)
        };
        (all > 0).then(|| descending(&self.logits(weight)).into_iter().enumerate().map(f1).collect())
    }

    /// The list as if its relevant passages had not been retrieved.
    pub fn without_relevant(&self) -> Self {
        let kept: Vec<usize> = (0..self.relevant.len()).filter(|&index| !self.relevant[index]).collect();
        let of = |values: &[f64]| -> Vec<f64> { kept.iter().map(|&index| values[index]).collect() };
        let texts: Vec<String> = kept.iter().map(|&index| self.texts.1[index].clone()).collect();
        let retriever = self.retriever.as_ref().map(|fusion| {
            let scores = match fusion.report.source {
                Source::Retriever => of(&fusion.scores),
                Source::Bm25 => bm25::scores(&self.texts.0, &texts, None),
            };
            Fusion { scores, ..fusion.clone() }
        });
        Self {
            utilities: of(&self.utilities),
            has_zero: self.has_zero,
            stages: kept.iter().map(|&index| self.stages[index]).collect(),
            unit: self.unit,
            retriever,
            cosines: self.cosines.as_deref().map(of),
            texts: (self.texts.0.clone(), texts),
            labels: of(&self.labels),
            relevant: vec![false; kept.len()],
        }
    }
}
