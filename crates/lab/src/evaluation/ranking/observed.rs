//! One list with a method's answer, to be mixed again with any shares.

use engine::fusion::bm25;
use engine::fusion::mixture::{Fusion, WEIGHT, embedding_shares};
use engine::methods;
use engine::types::{FusionOptions, Learnt, Passage, RankingStage, RerankRequest, Reranked, Shares, Source};
use numeric::{lowered, real};
use rag_metrics::rank::{Grading, Kind, Metric, Ranking};

/// Cosines of an embedding model.
#[derive(Debug, Clone, Default)]
pub(super) struct Cosines {
    /// One per passage.
    pub scores: Vec<f64>,
    /// For each passage true if the model cannot read it.
    pub unreadable: Vec<bool>,
}

/// A list, its labels, and the method's answer.
#[derive(Debug, Clone)]
pub(super) struct Observed {
    /// The model's own utility of each passage.
    utilities: Vec<f64>,
    /// The utilities before the first places were refined.
    pub alone: Vec<f64>,
    /// The method's order, best first.
    pub ranking: Vec<usize>,
    /// True if a utility of 0 means "no better than no passage".
    has_zero: bool,
    /// The stage that decided each passage's place: the generator evaluated all except the retriever's.
    pub stages: Vec<RankingStage>,
    /// Size of one unit of the logit.
    unit: f64,
    /// The retriever's side of the fusion; `None` for a method that does not fuse.
    retriever: Option<Fusion>,
    /// The cosines, if the method mixes in those of an embedding model.
    cosines: Option<Cosines>,
    /// Query and texts, for BM25 of a part of the list.
    texts: (String, Vec<String>),
    /// Gains of nDCG.
    labels: Vec<f64>,
    /// True for each relevant passage.
    pub relevant: Vec<bool>,
}

impl Observed {
    /// `answer` ranks every passage of `request`. `cosines` are those that the method mixed in.
    pub fn new(
        request: &RerankRequest,
        answer: &Reranked,
        cosines: Option<Cosines>,
        labels: &[f64],
        threshold: f64,
    ) -> Self {
        let n = request.passages.len();
        let (mut utilities, mut alone, mut stages) = (vec![0.0; n], vec![0.0; n], vec![RankingStage::Alone; n]);
        for passage in &answer.passages {
            utilities[passage.index] = passage.utility;
            alone[passage.index] = passage.alone;
            stages[passage.index] = passage.stage;
        }
        Self {
            utilities,
            alone,
            ranking: answer.passages.iter().map(|passage| passage.index).collect(),
            // This answer has no calibration.
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

    /// True if the method mixed in the cosines of an embedding model.
    pub const fn has_cosines(&self) -> bool {
        self.cosines.is_some()
    }

    /// The list as the method mixes it without an embedding model. If the cosines chose the places that a further stage
    /// refined, these places are as before the refinement.
    pub fn without_cosines(&self) -> Self {
        let stages = if self.has_cosines() { self.unrefined_stages() } else { self.stages.clone() };
        Self { cosines: None, stages, ..self.clone() }
    }

    fn unrefined_stages(&self) -> Vec<RankingStage> {
        let stages = self.stages.iter();
        stages.map(|&stage| if stage == RankingStage::Together { RankingStage::Alone } else { stage }).collect()
    }

    /// The built-in shares. Without cosines their share is 0.
    pub fn built_in(&self) -> Shares {
        let source = self.retriever.as_ref().map_or(Source::Retriever, |fusion| fusion.report.source);
        if self.has_cosines() { embedding_shares(source) } else { Shares { weight: WEIGHT, embedding: 0.0 } }
    }

    fn fusion(&self, shares: Shares) -> Option<Fusion> {
        let mut fusion = self.retriever.clone()?;
        fusion.report.weight = shares.weight;
        let Some(cosines) = &self.cosines else { return Some(fusion) };
        let learnt = Learnt { with_embedding: Some(shares), ..Learnt::default() };
        let cosines = (&*cosines.scores, &*cosines.unreadable);
        Some(fusion.with_embedding(cosines, &FusionOptions { learnt, ..FusionOptions::default() }))
    }

    /// Values of these utilities mixed with the other side; NaN for a passage that was not evaluated.
    fn mixed(&self, fusion: &Fusion, utilities: &[f64]) -> Vec<f64> {
        let read = (0..self.stages.len()).filter(|&index| self.stages[index] != RankingStage::Retriever);
        let read: Vec<usize> = read.collect();
        let of = |values: &[f64]| -> Vec<f64> { read.iter().map(|&index| values[index]).collect() };
        let part = fusion.with_scores(of(&fusion.scores));
        let mut all = vec![f64::NAN; self.stages.len()];
        for (&index, value) in read.iter().zip(part.values(&of(utilities), self.has_zero, self.unit).0) {
            all[index] = value;
        }
        all
    }

    /// The value of each passage and the order of all, best first. With the built-in shares, which the answer used,
    /// they equal the server's. With other shares they only reflect the mixture, because the answer's shares chose
    /// the refined places. The evaluated passages are always those of the answer. A method that does not fuse has
    /// its own order, which need not be by value.
    fn placed(&self, shares: Shares) -> (Vec<f64>, Vec<usize>) {
        let mut own = self.built_in();
        if !self.has_cosines() {
            own.embedding = shares.embedding;
        }
        if shares != own {
            return self.unrefined(shares);
        }
        let Some(fusion) = self.fusion(shares) else { return (self.utilities.clone(), self.ranking.clone()) };
        let [alone, together] = [&self.alone, &self.utilities].map(|utilities| self.mixed(&fusion, utilities));
        methods::placed(&self.stages, &alone, &together, &fusion.order())
    }

    /// The logit of each passage's uncalibrated score.
    pub fn logits(&self, shares: Shares) -> Vec<f64> {
        let (values, ranking) = self.placed(shares);
        lowered(&values, &ranking).into_iter().map(|value| value / self.unit).collect()
    }

    /// Neighbours with one relevant passage: by how much the value of the first exceeds the second's, at least 0,
    /// in the unit of the utilities, and true if the first is the relevant one.
    pub fn neighbours(&self, shares: Shares) -> Vec<(f64, bool)> {
        let (values, ranking) = self.placed(shares);
        let mixed_pair = |pair: &[usize]| {
            let (first, gap) = (self.relevant[pair[0]], values[pair[0]] - values[pair[1]]);
            (first != self.relevant[pair[1]]).then_some((gap.max(0.0), first))
        };
        ranking.windows(2).filter_map(mixed_pair).collect()
    }

    /// [`Self::placed`] of the mixture, before a further stage refined some places.
    fn unrefined(&self, shares: Shares) -> (Vec<f64>, Vec<usize>) {
        let Some(fusion) = self.fusion(shares) else { return (self.utilities.clone(), self.ranking.clone()) };
        let alone = self.mixed(&fusion, &self.alone);
        methods::placed(&self.unrefined_stages(), &alone, &alone, &fusion.order())
    }

    /// nDCG@10 within the list before any refinement; `None` if no passage is relevant.
    pub fn ndcg(&self, shares: Shares) -> Option<f64> {
        if !self.relevant.contains(&true) {
            return None;
        }
        let ranked: Vec<f64> = self.unrefined(shares).1.into_iter().map(|index| self.labels[index]).collect();
        let kind = Kind::Ndcg { exponential: false, within_list: false };
        let metric = Metric { kind, cutoff: Some(10), rel: None, judged_only: false };
        metric.of(&Ranking::of_labels(&ranked), Grading { threshold: f64::MIN_POSITIVE, graded: false })
    }

    /// F1 of the first result, the first two and so on, against all relevant passages of the list; `None` if there are
    /// none.
    pub fn f1_by_number(&self, shares: Shares) -> Option<Vec<f64>> {
        let all = self.relevant.iter().filter(|relevant| **relevant).count();
        let mut found = 0;
        let f1 = |(place, index): (usize, usize)| {
            found += usize::from(self.relevant[index]);
            2.0 * real(found) / real(place + 1 + all)
        };
        (all > 0).then(|| self.placed(shares).1.into_iter().enumerate().map(f1).collect())
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
            // The remaining list as a server would see it.
            let mut part = fusion.with_scores(scores);
            part.has_floor = part.has_floor || part.scores.iter().all(|score| *score >= 0.0);
            part
        });
        Self {
            utilities: of(&self.utilities),
            alone: of(&self.alone),
            ranking: self.ranking.iter().filter_map(|index| kept.binary_search(index).ok()).collect(),
            has_zero: self.has_zero,
            stages: kept.iter().map(|&index| self.stages[index]).collect(),
            unit: self.unit,
            retriever,
            cosines: self.cosines.as_ref().map(|cosines| Cosines {
                scores: of(&cosines.scores),
                unreadable: kept.iter().map(|&index| cosines.unreadable[index]).collect(),
            }),
            texts: (self.texts.0.clone(), texts),
            labels: of(&self.labels),
            relevant: vec![false; kept.len()],
        }
    }
}
