//! Semantic utility: by how much a single passage moves the generator's belief toward its belief with the whole
//! list.
//!
//! It is `DeltaSePer` (Dai et al., section 4) with the meanings of the generator's answers in place of reference
//! answers:
//!
//! ```text
//! m_c, π_c      meanings of 10 answers drawn with all passages, and their weights (clusters of mutual entailment)
//! S(X)          Σ_i w_i Σ_c π_c E(r_i, m_c)      r_i: 10 answers drawn with X, of weights w_i
//! utility of p  S(p) - S(no passage)
//! ```
//!
//! `m_c` is judged by the answer that founded its cluster. Between -1 and 1; 0 if the passage does not move the
//! belief. The judged answers use the same random numbers in every context, so the standard error is paired. It
//! covers the answers with and without p; the meanings count as fixed. The answers that give the meanings use other
//! random numbers: otherwise a passage with the effect of the whole list would be judged against its own answers,
//! and each answer supports itself. An empty answer has no meaning: it founds no cluster and supports none.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::{Budget, Method, Needs, Prompt, PromptShape, Ranking, Scored, Scores, Task};
use crate::answers::{self, AnswerPrompts};
use crate::prompt::Language;
use crate::sampling::stop::TextStop;
use crate::sampling::texts::Texts;
use crate::types::{EngineError, RerankRequest, SampleOptions};
use prefix_scheduler::call::Call;
use rag_metrics::belief::cluster::Clusterer;
use rag_metrics::belief::seper::{self, Against};
use rag_metrics::belief::{Estimate, Likelihood, Pairing, Rule, Verdict, Weighting};

const EMPTY: &str = "every answer of the generator with the whole list is empty: there is no meaning to move toward, the given \
                     order is kept";

/// Utility is a difference of probabilities.
pub(super) struct SemanticUtility;

/// Ten answers per context, as the belief services draw them.
fn options(request: &RerankRequest) -> SampleOptions {
    SampleOptions { seed: request.moi.seed, ..SampleOptions::default() }
}

impl Method for SemanticUtility {
    fn name(&self) -> &'static str {
        "semantic-utility"
    }

    fn summary(&self) -> &'static str {
        "by how much a passage alone moves answers toward the meanings of those with the whole list (after SePer)"
    }

    fn prompts(&self, request: &RerankRequest, language: &Language) -> Option<PromptShape> {
        let overhead = answers::overhead(language) + options(request).most_tokens();
        Some(PromptShape { longest: request.passages.len(), overhead })
    }

    fn drawn(&self, request: &RerankRequest) -> usize {
        let options = options(request);
        // None, all, and each passage.
        let contexts = request.passages.len().saturating_add(2);
        contexts.saturating_mul(options.count().saturating_mul(options.most_tokens()))
    }

    fn asks_judge(&self) -> bool {
        true
    }

    fn reads_own_answer(&self) -> bool {
        true
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let stop = options(&task.request).text_stop(task.language()?);
        Ok(Box::new(Measuring { task, stop, step: Step::Draw }))
    }
}

struct Measuring {
    task: Arc<Task>,
    stop: Arc<TextStop>,
    step: Step,
}

enum Step {
    /// No answer is drawn yet.
    Draw,
    Judge(Box<Judging>),
    Done(Box<Scored>),
}

/// The measured part of an answer.
#[derive(Debug, Clone)]
struct Answer {
    /// May be empty.
    text: String,
    likelihood: Likelihood,
}

/// No passage, all passages, and each passage. If a list has one passage, its context serves as both.
fn contexts(passages: usize) -> Vec<Vec<usize>> {
    let alone = (0..passages).map(|passage| vec![passage]);
    [Vec::new(), (0..passages).collect()].into_iter().chain(alone).collect()
}

/// The context without passages.
const NONE: usize = 0;
/// The context with all of them; its answers give the meanings.
const WHOLE: usize = 1;
/// The context with only the first passage.
const FIRST: usize = 2;

impl Measuring {
    fn drawing(&self) -> Result<Vec<Prompt>, EngineError> {
        let (task, options) = (&self.task, options(&self.task.request));
        let prompts = AnswerPrompts::new(task.language()?, &task.query, task.passages.iter().cloned());
        let draws = |(context, passages): (usize, Vec<usize>)| {
            let segments = prompts.prompt(&passages);
            let draw = |number| options.grow(&task.request.query, number, &self.stop);
            let first = if context == WHOLE { options.count() } else { 0 };
            let numbers = first..first + options.count();
            numbers.map(|number| Prompt::grown(segments.clone(), draw(number))).collect::<Vec<_>>()
        };
        Ok(contexts(task.passages.len()).into_iter().enumerate().flat_map(draws).collect())
    }

    /// The answers of each context, from the scores of [`Measuring::drawing`].
    fn drawn(&self, scores: &Scores) -> Result<Vec<Vec<Answer>>, EngineError> {
        let answer = |prompt: usize| {
            let sample = scores.sample(prompt).ok_or_else(|| EngineError::Internal("a sample is missing".into()))?;
            let (text, tokens) = self.stop.text(sample);
            let sum = sample.log_probabilities[..tokens].iter().sum();
            Ok(Answer { text, likelihood: Likelihood { sum, tokens } })
        };
        let answers = (0..scores.len()).map(answer).collect::<Result<Vec<_>, EngineError>>()?;
        Ok(answers.chunks(options(&self.task.request).count()).map(<[Answer]>::to_vec).collect())
    }
}

impl Ranking for Measuring {
    fn needs(&mut self, _: &Budget, _: &Call) -> Result<Option<Needs>, EngineError> {
        let judging = match &mut self.step {
            Step::Draw => return Ok(Some(Needs::Prompts(self.drawing()?))),
            Step::Judge(judging) => judging,
            Step::Done(_) => return Ok(None),
        };
        let open = judging.open();
        if !open.is_empty() {
            return Ok(Some(Needs::Verdicts(open.into_iter().map(|pair| judging.texts.pair(pair)).collect())));
        }
        let scored = judging.scored(self.task.passages.len())?;
        self.step = Step::Done(Box::new(scored));
        Ok(None)
    }

    fn absorb(&mut self, scores: &Scores, _: &Call) -> Result<(), EngineError> {
        match &mut self.step {
            Step::Judge(judging) => {
                judging.absorb(scores.verdicts());
                return Ok(());
            }
            Step::Draw => {}
            Step::Done(_) => return Err(EngineError::Internal("nothing was asked for".into())),
        }
        let judging = Judging::new(&self.task.request.query, &self.drawn(scores)?)?;
        self.step = match judging {
            Some(judging) => Step::Judge(Box::new(judging)),
            None => {
                let kept = Scored::by_utility(vec![0.0; self.task.passages.len()], 1.0);
                // Without an answer no passage can change it.
                Step::Done(Box::new(Scored { warnings: vec![EMPTY.to_owned()], has_zero: true, ..kept }))
            }
        };
        Ok(())
    }

    fn finish(&mut self, _: &Call) -> Result<Scored, EngineError> {
        match std::mem::replace(&mut self.step, Step::Draw) {
            Step::Done(scored) => Ok(*scored),
            _ => Err(EngineError::Internal("nothing was judged".into())),
        }
    }
}

/// The answers of a context.
struct Drawn {
    weights: Vec<f64>,
    /// Number of each answer's text; `None` for an empty answer.
    texts: Vec<Option<usize>>,
}

/// Answers whose meanings are being judged. Pairs hold text numbers: premise, hypothesis.
struct Judging {
    texts: Texts,
    drawn: Vec<Drawn>,
    /// Clusters the non-empty answers with the whole list.
    clusterer: Clusterer,
    /// The text number of each of these answers, and their weights.
    whole: (Vec<usize>, Vec<f64>),
    verdicts: HashMap<(usize, usize), Verdict>,
    /// The pairs that were requested last.
    asked: Vec<(usize, usize)>,
}

impl Judging {
    /// `None` if the whole list has no answer.
    fn new(query: &str, answers: &[Vec<Answer>]) -> Result<Option<Self>, EngineError> {
        let mut texts = Texts::after(Some(query));
        let weights = |answers: &[Answer]| {
            let likelihoods: Vec<Likelihood> = answers.iter().map(|answer| answer.likelihood).collect();
            Weighting::default().weights(&likelihoods)
        };
        let mut drawn = Vec::with_capacity(answers.len());
        for answers in answers {
            let mut number = |answer: &Answer| match answer.text.as_str() {
                "" => Ok(None),
                text => texts.number(text).map(Some),
            };
            let numbers = answers.iter().map(&mut number).collect::<Result<_, EngineError>>()?;
            drawn.push(Drawn { weights: weights(answers), texts: numbers });
        }
        let whole: Vec<Answer> = answers[WHOLE].iter().filter(|answer| !answer.text.is_empty()).cloned().collect();
        if whole.is_empty() {
            return Ok(None);
        }
        let spoken: Vec<String> = whole.iter().map(|answer| answer.text.clone()).collect();
        let numbers = drawn[WHOLE].texts.iter().flatten().copied().collect();
        Ok(Some(Self {
            texts,
            drawn,
            clusterer: Clusterer::new(&spoken, Rule::default()),
            whole: (numbers, weights(&whole)),
            verdicts: HashMap::new(),
            asked: Vec::new(),
        }))
    }

    /// The pairs of texts that the clusterer waits for, each with the clusterer's name for it.
    fn clustering(&self) -> Vec<((usize, usize), (usize, usize))> {
        let first = self.clusterer.representatives();
        let number = |text: usize| self.whole.0[first[text]];
        self.clusterer.needed().into_iter().map(|pair| (pair, (number(pair.0), number(pair.1)))).collect()
    }

    /// Every answer with one passage or none against every meaning; empty until there are meanings.
    fn comparisons(&self) -> Vec<(usize, usize)> {
        let Some(clusters) = self.clusterer.finish() else { return Vec::new() };
        let meanings: Vec<usize> = clusters.founders.iter().map(|&founder| self.whole.0[founder]).collect();
        let measured = self.drawn.iter().enumerate().filter(|(context, _)| *context != WHOLE);
        let answers = measured.flat_map(|(_, drawn)| drawn.texts.iter().flatten());
        answers.flat_map(|&answer| meanings.iter().map(move |&meaning| (answer, meaning))).collect()
    }

    /// The pairs to judge next; empty when all are judged.
    fn open(&mut self) -> Vec<(usize, usize)> {
        let clustering = self.clustering().into_iter().map(|(_, pair)| pair);
        let mut open: Vec<(usize, usize)> = clustering.collect();
        if open.is_empty() {
            open = self.comparisons();
        }
        open.retain(|pair| !self.verdicts.contains_key(pair));
        open.sort_unstable();
        open.dedup();
        self.asked.clone_from(&open);
        open
    }

    /// Adds the verdicts of [`Judging::open`].
    fn absorb(&mut self, verdicts: &[Verdict]) {
        self.verdicts.extend(self.asked.drain(..).zip(verdicts.iter().copied()));
        loop {
            let known = |(pair, numbers)| Some((pair, self.verdicts.get(&numbers).copied()?));
            let next: Vec<_> = self.clustering().into_iter().filter_map(known).collect();
            if next.is_empty() {
                return;
            }
            for (pair, verdict) in next {
                self.clusterer.absorb(pair, verdict);
            }
        }
    }

    /// `S` of a context.
    fn support(&self, context: usize, meanings: &[usize], shares: &[f64]) -> Option<Estimate> {
        let drawn = &self.drawn[context];
        let against = |meaning: &usize| Against {
            response_entails: drawn
                .texts
                .iter()
                .map(|text| text.map_or(Some(Verdict::NEITHER), |text| self.verdicts.get(&(text, *meaning)).copied()))
                .collect(),
            reference_entails: Vec::new(),
        };
        seper::shared(&drawn.weights, &meanings.iter().map(against).collect::<Vec<_>>(), shares)
    }

    fn scored(&self, passages: usize) -> Result<Scored, EngineError> {
        let missing = || EngineError::Internal("a verdict is missing".into());
        let clusters = self.clusterer.finish().ok_or_else(missing)?;
        let meanings: Vec<usize> = clusters.founders.iter().map(|&founder| self.whole.0[founder]).collect();
        let shares = clusters.masses(&self.whole.1);
        let none = self.support(NONE, &meanings, &shares).ok_or_else(missing)?;
        let gain = |passage: usize| {
            let with = self.support(FIRST + passage, &meanings, &shares).ok_or_else(missing)?;
            Ok(with.minus(&none, Pairing::Paired))
        };
        let gains = (0..passages).map(gain).collect::<Result<Vec<_>, EngineError>>()?;
        let errors = gains.iter().map(|gain| gain.standard_error.unwrap_or(f64::NAN)).collect();
        let utilities = gains.iter().map(|gain| gain.value).collect();
        Ok(Scored { standard_errors: Some(errors), ..Scored::against_none(utilities, 1.0) })
    }
}

#[cfg(test)]
mod tests;
