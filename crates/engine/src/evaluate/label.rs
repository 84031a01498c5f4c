//! Labels and end-to-end scores of one question: one plan holds all its prompts, then the answers are measured.

use std::sync::Arc;
use std::time::Instant;

use super::answer_judgement::{self, AnswerJudgement, Judgements, probability};
use super::bert_score;
use crate::answers::{self, Asked};
use crate::judgement::{Asks, JudgementPrompt};
use crate::rerank::Blanks;
use crate::sampling::measure::{Verdicts, measure, measure_soft};
use crate::sampling::texts::Texts;
use crate::sampling::{Drawing, Sampler};
use crate::types::{
    Annotator, Answer, EngineError, EvaluateRequest, LabelProbability, Response, Task, Usage, milliseconds,
};
use prefix_scheduler::call::Call;
use prefix_scheduler::plan::{NodeId, Plan};
use prefix_scheduler::scheduler::generator::{Event, Outcome};
use rag_metrics::lexical;

/// The error of hard SePer under a two-way model.
pub(super) fn two_way() -> EngineError {
    EngineError::Precondition("the entailment model is two-way: hard SePer needs a three-way model".into())
}

/// The labels and scores of all annotators.
pub(super) struct Labelled {
    /// Labels by annotator, one per passage; empty if passages are not labelled.
    pub labels: Vec<(Annotator, Vec<f64>)>,
    /// For each ranking, the scores of its end-to-end answer, one per annotator.
    pub end_to_end: Vec<Vec<Option<f64>>>,
    /// Greedy answers from single-passage prompts; empty if no annotator needs them.
    pub passage_answers: Vec<Answer>,
    /// The task's labels after single-passage prompts; empty if no annotator needs them.
    pub passage_labels: Vec<Vec<LabelProbability>>,
    /// For each ranking's context, the greedy answer and the task's labels; empty if not wanted.
    pub answers: Vec<(Option<Answer>, Vec<LabelProbability>)>,
    pub usage: Usage,
    pub judged_pairs: usize,
    pub warnings: Vec<String>,
}

/// The nodes of one context in the plan.
#[derive(Debug, Clone, Default)]
struct ContextNodes {
    greedy: Option<NodeId>,
    /// The labels of a task; they replace the greedy answer.
    labels: Vec<NodeId>,
    samples: Vec<NodeId>,
}

/// The plan of one question and the nodes of its contexts.
struct QuestionPlan {
    drawing: Drawing,
    /// One per passage; without nodes if no annotator needs answers. Empty if passages are not labelled.
    single: Vec<ContextNodes>,
    /// Distinct contexts of the rankings; empty if no end-to-end answers are wanted.
    whole: Vec<ContextNodes>,
    /// For each ranking, the index of its context in `whole`.
    whole_of: Vec<usize>,
    context_free: ContextNodes,
    /// For each annotator that asks about passages, the nodes of "Yes" and "No", one pair per passage.
    judgements: Vec<(Annotator, Vec<[NodeId; 2]>)>,
    /// Tokens of the judgement prompts without sharing.
    judgement_tokens: usize,
    /// The prompts that judge the greedy answers, once those exist.
    answer_judgement: Option<AnswerJudgement>,
}

impl QuestionPlan {
    /// Most tokens that the judgements of the answers will take.
    fn reserved(&self) -> usize {
        self.answer_judgement.as_ref().map_or(0, |prompts| prompts.most_tokens(self.single.len() + self.whole.len()))
    }
}

/// The measured answers of one context.
#[derive(Debug, Clone, Default)]
struct ContextScores {
    /// The greedy answer.
    answer: Option<Answer>,
    /// Its text as the measures use it.
    measured: Option<String>,
    /// Probability that it matches a reference.
    judged: Option<f64>,
    /// Its BERTScore.
    alike: Option<f64>,
    /// The task's labels.
    labels: Vec<LabelProbability>,
    /// SePer of the sampled answers.
    soft: Option<f64>,
    hard: Option<f64>,
}

/// Models' judgements of the greedy answers, if an annotator asks for them.
#[derive(Debug, Default)]
struct OfAnswers {
    judged: Option<Judgements>,
    alike: Option<bert_score::Scores>,
}

/// Answers of one context, as text.
#[derive(Debug, Clone, Default)]
struct Answers {
    greedy: Option<Answer>,
    labels: Vec<LabelProbability>,
    samples: Vec<Response>,
}

/// The answers of all contexts of a question.
struct Decoded {
    single: Vec<Answers>,
    whole: Vec<Answers>,
    whole_of: Vec<usize>,
    context_free: Answers,
    /// For each annotator that asks about passages, the probability of "Yes", one per passage.
    judgements: Vec<(Annotator, Vec<f64>)>,
    shortened: usize,
    naive_tokens: usize,
}

pub(super) async fn label(
    sampler: &Sampler,
    call: &Call,
    request: &Arc<EvaluateRequest>,
) -> Result<Labelled, EngineError> {
    let started = Instant::now();
    let (owned, inner) = (sampler.clone(), Arc::clone(request));
    let mut planned = call.compute(move |call| plan_question(&owned, call, &inner)).await?;
    let tokenise_ms = milliseconds(started);
    let references = bert_score::references(&sampler.models, call, request).await?;
    let of_references = references.as_ref().and_then(|references| references.warning.clone());
    let plan = std::mem::take(&mut planned.drawing.plan);
    let reserved = planned.reserved();
    let (outcome, mut usage) = if plan.is_empty() {
        (Outcome::default(), Usage::default())
    } else {
        run(sampler, call, plan, (request.token_budget, reserved)).await?
    };
    let (answer_judgement, asked) = (planned.answer_judgement.take(), Arc::clone(request));
    let decoded = call.compute(move |call| decode(&planned, &outcome, &asked.task, call)).await?;
    let greedy = decoded.single.iter().chain(&decoded.whole).filter_map(|answers| answers.greedy.as_ref());
    let texts: Vec<String> = greedy.map(|answer| request.task.measured(&answer.text)).collect();
    let mut of_answers = OfAnswers::default();
    if let Some(references) = references {
        of_answers.alike = Some(bert_score::scores(&sampler.models, call, texts.clone(), references).await?);
    }
    if let Some(prompts) = answer_judgement {
        of_answers.judged = Some(answer_judgement::judge(sampler, call, prompts, texts, reserved).await?);
    }
    sampler.models.release_generator(call);
    let question = request.measure.conditioned.then_some(request.question.as_str());
    let judge = sampler.models.judge_if_any();
    let mut verdicts = Verdicts::new(judge, Texts::after(question), call, sampler.limits.pairs);
    let context_free = measure_context(decoded.context_free, request, &of_answers, &mut verdicts).await?;
    let mut single = Vec::with_capacity(decoded.single.len());
    for answers in decoded.single {
        single.push(measure_context(answers, request, &of_answers, &mut verdicts).await?);
    }
    let mut whole = Vec::with_capacity(decoded.whole.len());
    for answers in decoded.whole {
        whole.push(measure_context(answers, request, &of_answers, &mut verdicts).await?);
    }
    usage.naive_tokens = decoded.naive_tokens;
    if let Some(judged) = &of_answers.judged {
        usage.add(&judged.outcome);
        usage.naive_tokens += judged.naive_tokens;
    }
    usage.tokenise_ms = tokenise_ms;
    let mut warnings = Vec::new();
    if decoded.shortened > 0 {
        warnings.push(format!("{} passages were cut to fit", decoded.shortened));
    }
    warnings.extend(Blanks::unread(&request.passages));
    warnings.extend(of_references.into_iter().chain(of_answers.alike.as_ref().and_then(bert_score::Scores::warning)));
    warnings.extend(verdicts.warning());
    let (request, judged_pairs) = (Arc::clone(request), verdicts.judged);
    let (judgements, whole_of) = (decoded.judgements, decoded.whole_of);
    let work = move |call: &Call| {
        let labels = if request.label_passages {
            labels(&request, &single, &context_free, &judgements, call)?
        } else {
            Vec::new()
        };
        // Rankings with the same context share its scores.
        let mut scores_of = Vec::with_capacity(whole.len());
        for scores in &whole {
            call.check()?;
            let score = |annotator: &Annotator| score(*annotator, scores, &context_free, &request);
            scores_of.push(request.annotators.iter().map(score).collect::<Vec<_>>());
        }
        let none = vec![None; request.annotators.len()];
        let of = |number: usize| whole_of.get(number).and_then(|&context| scores_of.get(context)).unwrap_or(&none);
        let end_to_end = (0..request.rankings().len()).map(|number| of(number).clone()).collect();
        let of = |context: &usize| (whole[*context].answer.clone(), whole[*context].labels.clone());
        let answers = whole_of.iter().map(of).collect();
        let (mut passage_answers, mut passage_labels) = (Vec::new(), Vec::new());
        for scores in single {
            passage_answers.extend(scores.answer);
            passage_labels.extend(Some(scores.labels).filter(|labels| !labels.is_empty()));
        }
        Ok::<_, EngineError>(Labelled {
            labels,
            end_to_end,
            passage_answers,
            passage_labels,
            answers,
            usage,
            judged_pairs,
            warnings,
        })
    };
    let mut labelled = call.compute(work).await?;
    labelled.usage.total_ms = milliseconds(started);
    Ok(labelled)
}

/// Runs the plan and reserves tokens of the budget for the judgements of its answers. Refuses a request that has
/// too few for both before any evaluation.
async fn run(
    sampler: &Sampler,
    call: &Call,
    plan: Plan,
    (token_budget, reserved): (Option<usize>, usize),
) -> Result<(Outcome, Usage), EngineError> {
    let allowed = sampler.limits.tokens.min(token_budget.unwrap_or(usize::MAX));
    let left = allowed.saturating_sub(reserved);
    sampler.run(call, plan, Some(left), None::<fn(Event)>).await.map_err(|error| match error {
        EngineError::Budget { needed, .. } => EngineError::Budget { needed: needed.saturating_add(reserved), allowed },
        other => other,
    })
}

/// The labels of every annotator, one per passage.
fn labels(
    request: &EvaluateRequest,
    single: &[ContextScores],
    context_free: &ContextScores,
    judgements: &[(Annotator, Vec<f64>)],
    call: &Call,
) -> Result<Vec<(Annotator, Vec<f64>)>, EngineError> {
    let contains = request.annotators.contains(&Annotator::ContainsAnswer);
    let sought = contains.then(|| lexical::Sought::new(&request.references));
    let label = |annotator: Annotator, index: usize| -> Result<f64, EngineError> {
        // Word overlap with up to 64 long references takes time.
        call.check()?;
        match annotator {
            Annotator::Provenance => Ok(request.provenance[index]),
            Annotator::ContainsAnswer => {
                let passage = &request.passages[index];
                let text = format!("{}\n{}", passage.title, passage.text);
                Ok(sought.as_ref().map_or(0.0, |sought| sought.found_in(&text)))
            }
            // A passage without text is not relevant.
            asking if asking.asks().is_some() && request.passages[index].is_blank() => Ok(0.0),
            asking if asking.asks().is_some() => {
                let missing = || EngineError::Internal("a judgement is missing".into());
                let of = judgements.iter().find(|(annotator, _)| *annotator == asking);
                of.map(|(_, probabilities)| probabilities[index]).ok_or_else(missing)
            }
            _ => score(annotator, &single[index], context_free, request).ok_or_else(two_way),
        }
    };
    let column = |&annotator: &Annotator| {
        let labels = (0..request.passages.len()).map(|index| label(annotator, index));
        Ok((annotator, labels.collect::<Result<_, EngineError>>()?))
    };
    request.annotators.iter().map(column).collect()
}

/// Turns the tokens of a finished plan into text.
fn decode(planned: &QuestionPlan, outcome: &Outcome, task: &Task, call: &Call) -> Result<Decoded, EngineError> {
    let drawing = &planned.drawing;
    let answers = |context: &ContextNodes| -> Result<Answers, EngineError> {
        call.check()?;
        let greedy = match context.greedy {
            Some(node) => Some(drawing.answer_at(outcome, node)?),
            None => drawing.likeliest_label(outcome, &context.labels),
        };
        let labels = drawing.label_probabilities(outcome, &context.labels);
        let sample = |node: &NodeId| Ok(Response::of(&drawing.answer_at(outcome, *node)?, task));
        let samples = context.samples.iter().map(sample).collect::<Result<_, EngineError>>()?;
        Ok(Answers { greedy, labels, samples })
    };
    let judged = |(annotator, nodes): &(Annotator, Vec<[NodeId; 2]>)| {
        (*annotator, nodes.iter().map(|&verdicts| probability(outcome, verdicts)).collect())
    };
    Ok(Decoded {
        single: planned.single.iter().map(answers).collect::<Result<_, _>>()?,
        whole: planned.whole.iter().map(answers).collect::<Result<_, _>>()?,
        whole_of: planned.whole_of.clone(),
        context_free: answers(&planned.context_free)?,
        judgements: planned.judgements.iter().map(judged).collect(),
        shortened: drawing.cut.iter().filter(|dropped| **dropped > 0).count(),
        naive_tokens: planned.judgement_tokens + drawing.naive_tokens(outcome),
    })
}

fn plan_question(sampler: &Sampler, call: &Call, request: &EvaluateRequest) -> Result<QuestionPlan, EngineError> {
    let asked = Asked {
        task: &request.task,
        question: &request.question,
        passages: &request.passages,
        passage_tokens: request.passage_tokens,
        truncate: request.truncate,
        references: &[],
    };
    let end_to_end = request.end_to_end && request.has(Annotator::scores_answers);
    let contexts = if end_to_end { request.contexts() } else { Vec::new() };
    let longest = contexts.iter().map(Vec::len).max().unwrap_or(1).max(1);
    let greedy = request.greedy();
    let generator = sampler.models.answering()?;
    let language = &generator.language;
    // A judgement prompt has more text around its passage than an answer prompt.
    let asked_of_passages = request.annotators.iter().filter_map(|annotator| annotator.asks());
    let judging = asked_of_passages.chain([Asks::Helps]).map(|asks| asks.overhead(language)).max();
    let judging = judging.unwrap_or(0).saturating_sub(answers::overhead_of(language, &request.task.wording()));
    let room = greedy.most_tokens().max(request.sampling.most_tokens()).max(judging);
    let mut drawing = Drawing::new(&sampler.limits, &generator, call, asked, (longest, room), &greedy)?;
    let greedily = request.has(Annotator::reads_answers);
    let beliefs = request.has(Annotator::is_belief);
    let labels = request.task.kind.has_labels();
    let mut context = |order: &[usize], lexical: bool| ContextNodes {
        greedy: if lexical && !labels {
            drawing.draw(&request.question, order, &greedy).first().copied()
        } else {
            None
        },
        labels: if lexical && labels { drawing.score_labels(order) } else { Vec::new() },
        samples: if beliefs { drawing.draw(&request.question, order, &request.sampling) } else { Vec::new() },
    };
    let labelled = if request.label_passages { request.passages.len() } else { 0 };
    let single = (0..labelled).map(|index| context(&[index], greedily)).collect();
    // Rankings with the same context have the same answer.
    let mut distinct: Vec<&Vec<usize>> = Vec::new();
    let mut whole_of = Vec::with_capacity(contexts.len());
    for order in &contexts {
        let at = distinct.iter().position(|other| *other == order).unwrap_or(distinct.len());
        if at == distinct.len() {
            distinct.push(order);
        }
        whole_of.push(at);
    }
    let whole = distinct.into_iter().map(|order| context(order, greedily)).collect();
    let context_free = if request.has(Annotator::is_delta) { context(&[], false) } else { ContextNodes::default() };
    let (mut judgements, mut judgement_tokens) = (Vec::new(), 0);
    for (annotator, asks) in request.annotators.iter().filter_map(|annotator| Some((*annotator, annotator.asks()?))) {
        let prompt = JudgementPrompt::new(asks, language, &language.query(&request.question));
        let of_passage = |index: usize| {
            prompt.verdicts(drawing.prompts.passage(index)).map(|segments| {
                // The last token is predicted and never evaluated.
                judgement_tokens += segments.iter().map(|segment| segment.tokens.len()).sum::<usize>() - 1;
                let path = drawing.plan.add(&segments);
                path[path.len() - 1]
            })
        };
        judgements.push((annotator, (0..request.passages.len()).map(of_passage).collect()));
    }
    let of_label = |label: &String| language.query(label).len();
    let longest_answer = request.task.labels().iter().map(of_label).max().unwrap_or_else(|| greedy.most_tokens());
    let answer_judgement = request
        .has(|annotator| annotator == Annotator::AnswerJudgement)
        .then(|| AnswerJudgement::fitted(&generator, &request.question, &request.references, longest_answer));
    let answer_judgement = answer_judgement.transpose()?;
    Ok(QuestionPlan { drawing, single, whole, whole_of, context_free, judgements, judgement_tokens, answer_judgement })
}

async fn measure_context(
    answers: Answers,
    request: &EvaluateRequest,
    of_answers: &OfAnswers,
    verdicts: &mut Verdicts<'_>,
) -> Result<ContextScores, EngineError> {
    let measured = answers.greedy.as_ref().map(|answer| request.task.measured(&answer.text));
    let text = measured.as_deref();
    let mut scores = ContextScores {
        judged: text.zip(of_answers.judged.as_ref()).map(|(text, judged)| judged.of(text)),
        alike: text.zip(of_answers.alike.as_ref()).and_then(|(text, alike)| alike.of(text)),
        measured,
        answer: answers.greedy,
        labels: answers.labels,
        ..ContextScores::default()
    };
    if answers.samples.is_empty() {
        return Ok(scores);
    }
    if request.has(Annotator::is_hard) {
        let belief = measure(verdicts, &answers.samples, &request.references, &request.measure).await?;
        scores.soft = belief.seper_soft.map(|soft| soft.value);
        scores.hard = belief.seper_hard.map(|hard| hard.value);
    } else {
        let soft = measure_soft(verdicts, &answers.samples, &request.references, &request.measure).await?;
        scores.soft = soft.map(|soft| soft.value);
    }
    Ok(scores)
}

/// An annotator's score of a context; `None` for the baselines, and for hard SePer under a two-way model.
fn score(
    annotator: Annotator,
    scores: &ContextScores,
    context_free: &ContextScores,
    request: &EvaluateRequest,
) -> Option<f64> {
    match annotator {
        Annotator::AnswerJudgement => scores.judged,
        Annotator::BertScore => scores.alike,
        Annotator::SeperSoft => scores.soft,
        Annotator::SeperHard => scores.hard,
        Annotator::DeltaSeperSoft => Some(scores.soft? - context_free.soft?),
        Annotator::DeltaSeperHard => Some(scores.hard? - context_free.hard?),
        lexical => Some(lexical.lexical()?(scores.measured.as_ref()?, &request.references)),
    }
}
