//! Beliefs: answers sampled from the generator, and what they say together.

pub mod options;
pub mod report;
mod stop;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub use options::{MeasureOptions, SampleOptions};
use report::Verdicts;
use stop::TextStop;

use super::answers::{AnswerPrompts, Asked};
use super::rerank::{Passage, Usage};
use super::{Engine, EngineError, Limits, milliseconds};
use crate::measure::belief::cluster::Clusters;
use crate::measure::belief::{Likelihood, Rule};
use crate::model::entailment::TextPair;
use crate::plan::{Finish, Grow, NodeId, Plan};
use crate::scheduler::entailment::Judged;
use crate::scheduler::{Event, Outcome};

/// A sampled answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its text, trimmed; may be empty.
    pub text: String,
    /// Natural log-probability of each of its tokens at the sampling temperature; for an empty answer that of the token that
    /// ended it.
    pub log_probabilities: Vec<f64>,
    /// Why it ended.
    pub finish: Finish,
}

impl Answer {
    /// What the measures need of it.
    #[must_use]
    pub fn likelihood(&self) -> Likelihood {
        Likelihood { sum: self.log_probabilities.iter().sum(), tokens: self.log_probabilities.len() }
    }
}

/// A question, its passages, and the contexts made of them in which answers are wanted.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BeliefRequest {
    /// The question.
    pub question: String,
    /// The passages.
    pub passages: Vec<Passage>,
    /// Passage indices of each context, in the order of reading; an empty one is the question alone.
    pub contexts: Vec<Vec<usize>>,
    /// How answers are sampled.
    pub options: SampleOptions,
    /// Most tokens of a passage; no bound but the context where `None`.
    pub passage_tokens: Option<usize>,
    /// Whether passages may be cut to fit; the server's default where `None`.
    pub truncate: Option<bool>,
    /// Most tokens to evaluate; the server's limit where `None`.
    pub token_budget: Option<usize>,
}

/// Something that happened on the way.
#[derive(Debug, Clone, PartialEq)]
pub enum BeliefEvent {
    /// A sample ended: context, number within it, answer.
    Sampled(usize, usize, Answer),
    /// A step ended: tokens done, tokens at most.
    Progress(usize, usize),
}

/// Answers by context.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sampled {
    /// For each context its answers, in the order of their numbers.
    pub answers: Vec<Vec<Answer>>,
    /// Tokens cut from each passage.
    pub cut: Vec<usize>,
    /// What it took.
    pub usage: Usage,
}

/// A plan of samples, and whose node is whose.
struct LaidOut {
    plan: Plan,
    /// Context and number of each sample.
    of: HashMap<NodeId, (usize, usize)>,
    /// Tokens of each context's prompt.
    prompt: Vec<usize>,
    cut: Vec<usize>,
}

impl BeliefRequest {
    fn check(&self, limits: &Limits) -> Result<(), EngineError> {
        let invalid = |field: String, problem: String| Err(EngineError::Invalid { field, problem });
        if self.question.trim().is_empty() {
            return invalid("question".into(), "must not be empty".into());
        }
        if self.question.len() > limits.query_bytes {
            let problem = format!("has {} bytes, the limit is {}", self.question.len(), limits.query_bytes);
            return invalid("question".into(), problem);
        }
        if self.passages.len() > limits.passages {
            let problem = format!("are {}, the limit is {}", self.passages.len(), limits.passages);
            return invalid("passages".into(), problem);
        }
        for (index, passage) in self.passages.iter().enumerate() {
            let field = format!("passages[{index}].text");
            if passage.text.trim().is_empty() {
                return invalid(field, "must not be empty".into());
            }
            let bytes = passage.text.len() + passage.title.len();
            if bytes > limits.passage_bytes {
                return invalid(field, format!("has {bytes} bytes, the limit is {}", limits.passage_bytes));
            }
        }
        if self.contexts.len() > limits.orders {
            let problem = format!("are {}, the limit is {}", self.contexts.len(), limits.orders);
            return invalid("contexts".into(), problem);
        }
        for (number, context) in self.contexts.iter().enumerate() {
            let mut seen = std::collections::HashSet::new();
            for index in context {
                if *index >= self.passages.len() {
                    let problem = format!("names passage {index}, there are {}", self.passages.len());
                    return invalid(format!("contexts[{number}]"), problem);
                }
                if !seen.insert(index) {
                    return invalid(format!("contexts[{number}]"), format!("names passage {index} twice"));
                }
            }
        }
        self.options.check()
    }
}

impl Engine {
    /// Samples answers in every context. All contexts share one plan: a prompt is evaluated once, and so is what prompts
    /// begin with alike. Dropping the future cancels the work.
    ///
    /// # Errors
    /// [`EngineError`] with the field at fault, before any work where that is possible.
    pub async fn sample(
        &self,
        request: BeliefRequest,
        deadline: Option<Instant>,
        listener: Option<UnboundedSender<BeliefEvent>>,
    ) -> Result<Sampled, EngineError> {
        let started = Instant::now();
        request.check(&self.limits)?;
        let allowed = self.limits.tokens.min(request.token_budget.unwrap_or(usize::MAX));
        let stop = Arc::new(TextStop::new(Arc::clone(&self.tokenizer), request.options.stops()));
        let (engine, inner, ending) = (self.clone(), request.clone(), Arc::clone(&stop));
        let laid_out = tokio::task::spawn_blocking(move || engine.lay_samples_out(&inner, &ending));
        let laid_out = laid_out.await.map_err(|error| EngineError::Internal(error.to_string()))??;
        let mut usage = Usage { tokenise_ms: milliseconds(started), ..Usage::default() };
        let cost = laid_out.plan.cost();
        if cost.tokens > allowed {
            return Err(EngineError::Budget { needed: cost.tokens, allowed });
        }
        let plan = Arc::new(laid_out.plan);
        let (sender, mut events) = unbounded_channel();
        let mut work = std::pin::pin!(self.scheduler.run(plan, deadline, listener.is_some().then_some(sender)));
        let tell = |event: Event| {
            let told = match event {
                Event::Sampled(node, sample) => laid_out
                    .of
                    .get(&node)
                    .map(|&(context, number)| BeliefEvent::Sampled(context, number, answer(&stop, &sample))),
                Event::Progress { done, total } => Some(BeliefEvent::Progress(done, total)),
                Event::Scored(..) => None,
            };
            if let Some((listener, told)) = listener.as_ref().zip(told) {
                let _ = listener.send(told);
            }
        };
        let outcome: Outcome = loop {
            tokio::select! {
                biased;
                Some(event) = events.recv() => tell(event),
                outcome = &mut work => break outcome?,
            }
        };
        while let Ok(event) = events.try_recv() {
            tell(event);
        }
        let mut answers: Vec<Vec<Option<Answer>>> = vec![vec![None; request.options.count()]; request.contexts.len()];
        for (node, &(context, number)) in &laid_out.of {
            let sample =
                outcome.samples.get(node).ok_or_else(|| EngineError::Internal("a sample is missing".into()))?;
            answers[context][number] = Some(answer(&stop, sample));
            usage.naive_tokens += laid_out.prompt[context] + sample.tokens.len() - 1;
        }
        usage.tokens = outcome.tokens;
        usage.cached_tokens = outcome.cached_tokens;
        usage.steps = outcome.steps;
        usage.queue_ms = outcome.queued.as_secs_f64() * 1e3;
        usage.score_ms = outcome.running.as_secs_f64() * 1e3;
        usage.total_ms = milliseconds(started);
        let answers = answers.into_iter().map(|answers| answers.into_iter().flatten().collect()).collect();
        Ok(Sampled { answers, cut: laid_out.cut, usage })
    }

    /// The most tokens that [`Engine::sample`] may evaluate; nothing is.
    pub(super) async fn sampling_cost(&self, request: BeliefRequest) -> Result<usize, EngineError> {
        request.check(&self.limits)?;
        let stop = Arc::new(TextStop::new(Arc::clone(&self.tokenizer), Vec::new()));
        let engine = self.clone();
        let laid_out = tokio::task::spawn_blocking(move || engine.lay_samples_out(&request, &stop));
        Ok(laid_out.await.map_err(|error| EngineError::Internal(error.to_string()))??.plan.cost().tokens)
    }

    fn lay_samples_out(&self, request: &BeliefRequest, stop: &Arc<TextStop>) -> Result<LaidOut, EngineError> {
        let options = &request.options;
        let longest = request.contexts.iter().map(Vec::len).max().unwrap_or(0);
        let asked = Asked {
            question: &request.question,
            passages: &request.passages,
            passage_tokens: request.passage_tokens,
            truncate: request.truncate,
        };
        let prompts = AnswerPrompts::new(self, asked, longest, options.most_tokens())?;
        let mut laid_out =
            LaidOut { plan: Plan::new(), of: HashMap::new(), prompt: Vec::new(), cut: prompts.cut.clone() };
        for (context, order) in request.contexts.iter().enumerate() {
            let segments = prompts.prompt(order);
            laid_out.prompt.push(segments.iter().map(|segment| segment.tokens.len()).sum());
            let path = laid_out.plan.add(&segments);
            for number in 0..options.count() {
                let grow = Grow {
                    sampling: options.sampling,
                    most: options.most_tokens(),
                    seed: options.seed_of(&request.question, number),
                    stop: Arc::clone(stop) as Arc<dyn crate::plan::Stop>,
                };
                laid_out.of.insert(laid_out.plan.sample(path[path.len() - 1], grow), (context, number));
            }
        }
        Ok(laid_out)
    }
}

fn answer(stop: &TextStop, sample: &crate::scheduler::Sample) -> Answer {
    let (text, tokens) = stop.text(sample);
    Answer { text, log_probabilities: sample.log_probabilities[..tokens].to_vec(), finish: sample.finish }
}

/// Pairs in one list.
const MOST_PAIRS: usize = 10_000;
/// Texts to be clustered at once.
const MOST_TEXTS: usize = 1_000;

impl Engine {
    /// Judges pairs, each text after `question` where that is not empty.
    ///
    /// # Errors
    /// [`EngineError`]: no pairs or too many, no entailment model, or one that cannot be loaded.
    pub async fn entail(
        &self,
        pairs: Vec<TextPair>,
        question: &str,
        deadline: Option<Instant>,
    ) -> Result<Judged, EngineError> {
        if pairs.is_empty() || pairs.len() > MOST_PAIRS {
            let problem = format!("must be between 1 and {MOST_PAIRS}, are {}", pairs.len());
            return Err(EngineError::invalid("pairs", problem));
        }
        for (index, pair) in pairs.iter().enumerate() {
            for (field, text) in [("premise", &pair.premise), ("hypothesis", &pair.hypothesis)] {
                self.check_text(&format!("pairs[{index}].{field}"), text)?;
            }
        }
        let verdicts =
            Verdicts::new(self.judge.as_ref(), Some(question).filter(|question| !question.trim().is_empty()), deadline);
        let pairs = pairs.iter().map(|pair| verdicts.pair(&pair.premise, &pair.hypothesis)).collect();
        Ok(self.judge_or_refuse()?.judge(pairs, deadline).await?)
    }

    /// Clusters texts, each after `question` where that is not empty. Returns the pairs judged, too.
    ///
    /// # Errors
    /// As [`Engine::entail`].
    pub async fn cluster(
        &self,
        texts: &[String],
        question: &str,
        rule: Rule,
        deadline: Option<Instant>,
    ) -> Result<(Clusters, usize), EngineError> {
        if texts.is_empty() || texts.len() > MOST_TEXTS {
            let problem = format!("must be between 1 and {MOST_TEXTS}, are {}", texts.len());
            return Err(EngineError::invalid("texts", problem));
        }
        for (index, text) in texts.iter().enumerate() {
            self.check_text(&format!("texts[{index}]"), text)?;
        }
        if let Rule::Threshold(least) = rule
            && !(least > 0.0 && least <= 1.0)
        {
            return Err(EngineError::invalid("threshold", "must be above 0 and at most 1"));
        }
        let question = Some(question).filter(|question| !question.trim().is_empty());
        let mut verdicts = Verdicts::new(self.judge.as_ref(), question, deadline);
        self.judge_or_refuse()?;
        let clusters = report::cluster(&mut verdicts, texts, rule).await?;
        Ok((clusters, verdicts.judged))
    }

    fn check_text(&self, field: &str, text: &str) -> Result<(), EngineError> {
        if text.len() > self.limits.passage_bytes {
            let problem = format!("has {} bytes, the limit is {}", text.len(), self.limits.passage_bytes);
            return Err(EngineError::invalid(field, problem));
        }
        Ok(())
    }
}
