//! Beliefs: answers sampled from the generator, and their measures.

mod drawing;
pub mod options;
pub mod report;
mod similarity;
pub(crate) mod stop;
pub(crate) mod texts;

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use tokio::sync::mpsc::UnboundedSender;

pub(super) use drawing::Drawing;
use drawing::log_likelihoods;
pub use options::{MeasureOptions, SampleOptions};
use report::Verdicts;
pub(super) use stop::TextStop;
use texts::Texts;

use super::answers::Asked;
use super::estimate::Size;
use super::rerank::{Blanks, Passage, Usage, unmarked};
use super::task::{LabelProbability, Task};
use super::{Engine, EngineError, Limits, milliseconds};
use prefix_scheduler::call::Call;
use prefix_scheduler::model::entailment::EntailmentProbabilities;
pub use prefix_scheduler::model::entailment::TextPair;
use prefix_scheduler::plan::{Finish, NodeId};
use prefix_scheduler::scheduler::entailment::Judged;
use prefix_scheduler::scheduler::generator::Event;
use rag_metrics::belief::cluster::Clusters;
use rag_metrics::belief::{Likelihood, Rule, Verdict};

/// A sampled answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The text before the first stop string, trimmed; may be empty.
    pub text: String,
    /// Natural log-probability of each token of the text at the sampling temperature; for an empty answer that of its first
    /// token.
    pub log_probabilities: Vec<f64>,
    /// Why it ended.
    pub finish: Finish,
}

impl Answer {
    /// Its likelihood, for the measures.
    #[must_use]
    pub fn likelihood(&self) -> Likelihood {
        Likelihood { sum: self.log_probabilities.iter().sum(), tokens: self.log_probabilities.len() }
    }
}

/// The model's probabilities, for the measures.
pub(crate) const fn verdict(probabilities: EntailmentProbabilities) -> Verdict {
    let EntailmentProbabilities { entailment, neutral, contradiction } = probabilities;
    Verdict { entailment, neutral, contradiction }
}

/// A question, its passages, and the contexts in which answers are sampled.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BeliefRequest {
    /// The question.
    pub question: String,
    /// The passages.
    pub passages: Vec<Passage>,
    /// Passage indices of each context, in the order of reading. An empty list is the question alone.
    pub contexts: Vec<Vec<usize>>,
    /// What the generator is asked to do.
    pub task: Task,
    /// How answers are sampled.
    pub options: SampleOptions,
    /// Most tokens of a passage; bounded by the context only if `None`.
    pub passage_tokens: Option<usize>,
    /// Whether passages may be cut to fit; the server's default if `None`.
    pub truncate: Option<bool>,
    /// Most tokens to evaluate; the server's limit if `None`.
    pub token_budget: Option<usize>,
    /// Answers whose likelihood is scored in every context, beside those that are sampled.
    pub references: Vec<String>,
}

/// Progress of [`Engine::sample`].
#[derive(Debug, Clone, PartialEq)]
pub enum BeliefEvent {
    /// A sample ended: context, number within it, answer.
    Sampled(usize, usize, Answer),
    /// A step ended: tokens evaluated so far, and the most that may be.
    Progress(usize, usize),
}

/// The sampled answers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sampled {
    /// Answers of each context, in the order of their numbers.
    pub answers: Vec<Vec<Answer>>,
    /// The labels of each context with their probabilities; empty lists for tasks without labels.
    pub labels: Vec<Vec<LabelProbability>>,
    /// log P of each reference in each context, in nats.
    pub references: Vec<Vec<f64>>,
    /// Number of tokens cut from each passage.
    pub cut: Vec<usize>,
    /// The warning about empty passages.
    pub(crate) unread: Option<String>,
    /// Cost of the generator.
    pub usage: Usage,
}

impl Sampled {
    /// Passages that were cut to fit.
    pub(crate) fn shortened(&self) -> usize {
        self.cut.iter().filter(|dropped| **dropped > 0).count()
    }

    /// The warnings about passages that were cut, or that are empty.
    pub fn warnings(&self) -> Vec<String> {
        let cut = Some(self.shortened()).filter(|count| *count > 0);
        let cut = cut.map(|count| format!("{count} passages were cut to fit"));
        cut.into_iter().chain(self.unread.clone()).collect()
    }
}

/// The nodes of one context.
struct Nodes {
    samples: Vec<NodeId>,
    labels: Vec<NodeId>,
    references: Vec<NodeId>,
}

impl BeliefRequest {
    /// The request with the task's length of an answer where it names none.
    fn with_defaults(self) -> Self {
        Self { options: self.task.sampling(self.options), ..self }
    }

    fn check(&self, limits: &Limits) -> Result<(), EngineError> {
        check_texts(&self.question, &self.passages, limits)?;
        if self.contexts.len() > limits.orders {
            let problem = format!("{} given, at most {} allowed", self.contexts.len(), limits.orders);
            return Err(EngineError::invalid("contexts", problem));
        }
        check_orders("contexts", &self.contexts, self.passages.len())?;
        check_references(&self.references, limits)?;
        self.task.check()?;
        self.options.check()
    }
}

/// Refuses a question that is empty, and a question or passages that exceed the limits.
pub(super) fn check_texts(question: &str, passages: &[Passage], limits: &Limits) -> Result<(), EngineError> {
    check_question(question, limits)?;
    check_passages(passages, limits)
}

/// Refuses a question that is empty or too long.
pub(super) fn check_question(question: &str, limits: &Limits) -> Result<(), EngineError> {
    let invalid = |field: String, problem: String| Err(EngineError::Invalid { field, problem });
    if unmarked(question).trim().is_empty() {
        return invalid("question".into(), "must not be empty".into());
    }
    if question.len() > limits.query_bytes {
        let problem = format!("{} bytes given, at most {} allowed", question.len(), limits.query_bytes);
        return invalid("question".into(), problem);
    }
    Ok(())
}

/// Refuses passages that exceed the limits. Prompts read nothing of an empty one.
pub(super) fn check_passages(passages: &[Passage], limits: &Limits) -> Result<(), EngineError> {
    let invalid = |field: String, problem: String| Err(EngineError::Invalid { field, problem });
    if passages.len() > limits.passages {
        let problem = format!("{} given, at most {} allowed", passages.len(), limits.passages);
        return invalid("passages".into(), problem);
    }
    for (index, passage) in passages.iter().enumerate() {
        let field = format!("passages[{index}].text");
        let bytes = passage.text.len() + passage.title.len();
        if bytes > limits.passage_bytes {
            return invalid(field, format!("{bytes} bytes given, at most {} allowed", limits.passage_bytes));
        }
        if passage.retriever_score.is_some_and(|score| !score.is_finite()) {
            return invalid(format!("passages[{index}].retriever_score"), "must be a finite number".into());
        }
    }
    Ok(())
}

/// Refuses a passage without text, where every passage has its place in what is measured and nobody would hear a warning.
pub(super) fn refuse_blank(passages: &[Passage]) -> Result<(), EngineError> {
    let refused = |index| EngineError::invalid(format!("passages[{index}].text"), "must not be empty");
    passages.iter().position(Passage::is_blank).map_or(Ok(()), |index| Err(refused(index)))
}

/// Most references of one request.
pub const MOST_REFERENCES: usize = 64;

/// Refuses references that are empty, too many or too long.
pub(super) fn check_references(references: &[String], limits: &Limits) -> Result<(), EngineError> {
    if references.len() > MOST_REFERENCES {
        let problem = format!("{} given, at most {MOST_REFERENCES} allowed", references.len());
        return Err(EngineError::invalid("references", problem));
    }
    for (index, reference) in references.iter().enumerate() {
        let field = || format!("references[{index}]");
        if reference.trim().is_empty() {
            return Err(EngineError::invalid(field(), "must not be empty"));
        }
        if reference.len() > limits.query_bytes {
            let problem = format!("{} bytes given, at most {} allowed", reference.len(), limits.query_bytes);
            return Err(EngineError::invalid(field(), problem));
        }
    }
    Ok(())
}

/// Refuses lists of passage indices with a duplicate or an index out of range.
pub(super) fn check_orders(field: &str, orders: &[Vec<usize>], passages: usize) -> Result<(), EngineError> {
    for (number, order) in orders.iter().enumerate() {
        let mut seen = std::collections::HashSet::new();
        for index in order {
            let problem = if *index >= passages {
                format!("passage {index} is out of range, {passages} given")
            } else if !seen.insert(index) {
                format!("passage {index} is listed twice")
            } else {
                continue;
            };
            return Err(EngineError::invalid(format!("{field}[{number}]"), problem));
        }
    }
    Ok(())
}

impl Engine {
    /// Samples answers in every context. All contexts share one plan: a prompt is evaluated once, and so is a common
    /// beginning of prompts. Dropping the future cancels the work.
    ///
    /// # Errors
    /// [`EngineError`] with the field at fault, before any work where that is possible.
    pub async fn sample(
        &self,
        call: &Call,
        request: BeliefRequest,
        listener: Option<UnboundedSender<BeliefEvent>>,
    ) -> Result<Sampled, EngineError> {
        let started = Instant::now();
        let request = request.with_defaults();
        request.check(&self.limits)?;
        let admitted = Size::of_samples(&request, self.limits.tokens).admit(call, self.models().generator(None)?)?;
        let (engine, inner) = (self.clone(), request.clone());
        let (mut drawing, contexts) = call.compute(move |call| engine.lay_samples_out(call, &inner)).await?;
        let tokenise_ms = milliseconds(started);
        let unread = Blanks::unread(&request.passages);
        let numbered = |(context, nodes): (usize, &Nodes)| {
            nodes.samples.iter().enumerate().map(move |(number, node)| (*node, (context, number))).collect::<Vec<_>>()
        };
        let of: HashMap<NodeId, (usize, usize)> = contexts.iter().enumerate().flat_map(numbered).collect();
        let plan = std::mem::take(&mut drawing.plan);
        let tell = listener.map(|listener| {
            let (drawing, of) = (&drawing, &of);
            move |event: Event| {
                let progress = match event {
                    Event::Sampled(node, sample) => of
                        .get(&node)
                        .map(|&(context, number)| BeliefEvent::Sampled(context, number, drawing.answer(&sample))),
                    Event::Progress { done, total } => Some(BeliefEvent::Progress(done, total)),
                    Event::Scored(..) => None,
                };
                if let Some(progress) = progress {
                    let _ = listener.send(progress);
                }
            }
        });
        let (outcome, mut usage) = self.carry_out(call, plan, request.token_budget, tell).await?;
        let decode = move |_: &Call| {
            let drawn = |nodes: &Nodes| nodes.samples.iter().map(|node| drawing.answer_at(&outcome, *node)).collect();
            let answers = contexts.iter().map(drawn).collect::<Result<_, EngineError>>()?;
            usage.naive_tokens = drawing.naive_tokens(&outcome);
            let labels = contexts.iter().map(|nodes| drawing.label_probabilities(&outcome, &nodes.labels)).collect();
            let references = contexts.iter().map(|nodes| log_likelihoods(&outcome, &nodes.references)).collect();
            Ok::<_, EngineError>(Sampled { answers, labels, references, cut: drawing.cut, unread, usage })
        };
        let mut sampled = call.compute(decode).await?;
        admitted.learn_from(call);
        sampled.usage.tokenise_ms = tokenise_ms;
        sampled.usage.total_ms = milliseconds(started);
        Ok(sampled)
    }

    /// The most tokens that [`Engine::sample`] may evaluate. Evaluates nothing.
    pub(super) async fn sampling_cost(&self, call: &Call, request: BeliefRequest) -> Result<usize, EngineError> {
        let request = request.with_defaults();
        request.check(&self.limits)?;
        let engine = self.clone();
        call.compute(move |call| Ok(engine.lay_samples_out(call, &request)?.0.plan.cost().tokens)).await
    }

    /// The plan, and the nodes of each context.
    fn lay_samples_out(&self, call: &Call, request: &BeliefRequest) -> Result<(Drawing, Vec<Nodes>), EngineError> {
        let longest = request.contexts.iter().map(Vec::len).max().unwrap_or(0);
        let asked = Asked {
            task: &request.task,
            question: &request.question,
            passages: &request.passages,
            passage_tokens: request.passage_tokens,
            truncate: request.truncate,
            references: &request.references,
        };
        let options = &request.options;
        let room = (longest, options.most_tokens());
        let mut drawing = Drawing::new(self, &*self.generator()?, call, asked, room, options)?;
        let draw = |order: &Vec<usize>| {
            call.check()?;
            Ok(drawing.draw(&request.question, order, options))
        };
        let samples = request.contexts.iter().map(draw).collect::<Result<Vec<_>, EngineError>>()?;
        // Before every reference is laid out after every context, which takes seconds where both are many: what is drawn, and the
        // tokens of the references in each distinct context. Equal contexts share their nodes, and so do equal references.
        let distinct: HashSet<&Vec<usize>> = request.contexts.iter().collect();
        let scored = drawing.prompts.reference_tokens().saturating_mul(distinct.len());
        let (needed, allowed) = (drawing.plan.cost().tokens.saturating_add(scored), self.limits.tokens);
        if needed > allowed {
            return Err(EngineError::Budget { needed, allowed });
        }
        let mut contexts = Vec::with_capacity(samples.len());
        for (samples, order) in samples.into_iter().zip(&request.contexts) {
            call.check()?;
            let (labels, references) = (drawing.score_labels(order), drawing.score_references(order));
            contexts.push(Nodes { samples, labels, references });
        }
        Ok((drawing, contexts))
    }
}

/// Most pairs in one request.
const MOST_PAIRS: usize = 10_000;
/// Most texts to cluster at once.
const MOST_TEXTS: usize = 1_000;

impl Engine {
    /// Judges pairs of texts. `question` precedes every text unless it is empty.
    ///
    /// # Errors
    /// [`EngineError`]: no pairs or too many, no entailment model configured, or one that cannot be loaded.
    pub async fn entail(&self, call: &Call, pairs: Vec<TextPair>, question: &str) -> Result<Judged, EngineError> {
        if pairs.is_empty() || pairs.len() > MOST_PAIRS {
            let problem = format!("{} given, 1 to {MOST_PAIRS} allowed", pairs.len());
            return Err(EngineError::invalid("pairs", problem));
        }
        for (index, pair) in pairs.iter().enumerate() {
            self.check_text(&format!("pairs[{index}].premise"), &pair.premise)?;
            self.check_text(&format!("pairs[{index}].hypothesis"), &pair.hypothesis)?;
        }
        if pairs.len() > self.limits.pairs {
            return Err(EngineError::Pairs { allowed: self.limits.pairs });
        }
        let judge = self.models().judge()?;
        let mut texts = self.conditioned(question)?;
        let condition = move |_: &Call| {
            let pair = |pair: &TextPair| {
                let (premise, hypothesis) = (texts.number(&pair.premise)?, texts.number(&pair.hypothesis)?);
                Ok::<_, EngineError>(texts.pair((premise, hypothesis)))
            };
            pairs.iter().map(pair).collect::<Result<Vec<_>, _>>()
        };
        Ok(judge.judge(call.compute(condition).await?, call).await?)
    }

    /// Clusters texts. `question` precedes every text unless it is empty. Also returns the number of pairs judged.
    ///
    /// # Errors
    /// As [`Engine::entail`].
    pub async fn cluster(
        &self,
        call: &Call,
        texts: &[String],
        question: &str,
        rule: Rule,
    ) -> Result<(Clusters, usize), EngineError> {
        if texts.is_empty() || texts.len() > MOST_TEXTS {
            let problem = format!("{} given, 1 to {MOST_TEXTS} allowed", texts.len());
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
        let texts_of = self.conditioned(question)?;
        self.models().judge()?;
        let mut verdicts = Verdicts::new(self.models().judge_if_any(), texts_of, call, self.limits().pairs);
        let clusters = report::cluster(&mut verdicts, texts, rule).await?;
        Ok((clusters, verdicts.judged))
    }

    /// Texts after a question of the caller; bare ones where it is empty.
    fn conditioned(&self, question: &str) -> Result<Texts, EngineError> {
        if question.len() > self.limits.query_bytes {
            let problem = format!("{} bytes given, at most {} allowed", question.len(), self.limits.query_bytes);
            return Err(EngineError::invalid("question", problem));
        }
        Ok(Texts::after(Some(question).filter(|question| !question.trim().is_empty())))
    }

    fn check_text(&self, field: &str, text: &str) -> Result<(), EngineError> {
        if text.len() > self.limits.passage_bytes {
            let problem = format!("{} bytes given, at most {} allowed", text.len(), self.limits.passage_bytes);
            return Err(EngineError::invalid(field, problem));
        }
        Ok(())
    }
}
