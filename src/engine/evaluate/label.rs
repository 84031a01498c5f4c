//! Labels and end-to-end scores of one question: one plan holds all its prompts, then the answers are measured.

use std::time::Instant;

use super::{Annotator, EvaluateRequest, judgement};
use crate::call::Call;
use crate::engine::answers::{self, Asked};
use crate::engine::belief::report::{Response, Verdicts, measure, measure_soft};
use crate::engine::belief::{Answer, Drawing};
use crate::engine::rerank::Usage;
use crate::engine::{Engine, EngineError, milliseconds};
use crate::metrics::lexical;
use crate::numeric::sigmoid;
use crate::plan::NodeId;
use crate::scheduler::generator::{Event, Outcome};

/// The labels and scores of all annotators.
pub(super) struct Labelled {
    /// Labels by annotator, one a passage.
    pub labels: Vec<(Annotator, Vec<f64>)>,
    /// For each ranking the scores of its end-to-end answer, one an annotator.
    pub end_to_end: Vec<Vec<Option<f64>>>,
    /// Greedy answers from each passage alone; empty where no annotator needs them.
    pub passage_answers: Vec<Answer>,
    /// Greedy answers from each ranking's context; empty where none were wanted.
    pub answers: Vec<Option<Answer>>,
    pub usage: Usage,
    pub judged_pairs: usize,
    pub warnings: Vec<String>,
}

/// The nodes of one context in the plan.
#[derive(Debug, Clone, Default)]
struct ContextNodes {
    greedy: Option<NodeId>,
    samples: Vec<NodeId>,
}

/// The plan of one question and the nodes of its contexts.
struct QuestionPlan {
    drawing: Drawing,
    /// One a passage; without nodes where no annotator needs answers.
    single: Vec<ContextNodes>,
    /// Distinct contexts of the rankings; empty where no end-to-end answers are wanted.
    whole: Vec<ContextNodes>,
    /// For each ranking the index of its context in `whole`.
    whole_of: Vec<usize>,
    context_free: ContextNodes,
    /// For each passage the nodes of "Yes" and "No".
    judgements: Vec<[NodeId; 2]>,
    /// Tokens of the judgement prompts without sharing.
    judgement_tokens: usize,
}

/// The answers of one context, measured.
#[derive(Debug, Clone, Default)]
struct ContextScores {
    /// The greedy answer.
    answer: Option<Answer>,
    /// SePer of the sampled answers.
    soft: Option<f64>,
    hard: Option<f64>,
}

pub(super) async fn label(engine: &Engine, call: &Call, request: &EvaluateRequest) -> Result<Labelled, EngineError> {
    let started = Instant::now();
    let (owned, inner) = (engine.clone(), request.clone());
    let mut planned = call.compute(move |_| plan_question(&owned, &inner)).await?;
    let tokenise_ms = milliseconds(started);
    let plan = std::mem::take(&mut planned.drawing.plan);
    let (outcome, mut usage) = if plan.is_empty() {
        (Outcome::default(), Usage::default())
    } else {
        engine.carry_out(call, plan, request.token_budget, None::<fn(Event)>).await?
    };
    let question = request.measure.conditioned.then_some(request.question.as_str());
    let mut verdicts = Verdicts::new(engine.models().judge_if_any(), question, call, engine.limits().pairs);
    let drawing = &planned.drawing;
    let context_free = measure_context(drawing, &planned.context_free, &outcome, request, &mut verdicts).await?;
    let mut single = Vec::with_capacity(planned.single.len());
    for context in &planned.single {
        single.push(measure_context(drawing, context, &outcome, request, &mut verdicts).await?);
    }
    let mut whole = Vec::with_capacity(planned.whole.len());
    for context in &planned.whole {
        whole.push(measure_context(drawing, context, &outcome, request, &mut verdicts).await?);
    }
    let sum = |node: NodeId| outcome.scores.get(node.0).map_or(0.0, |scores| scores.iter().sum::<f64>());
    let mut labels = Vec::with_capacity(request.annotators.len());
    for &annotator in &request.annotators {
        let of = |index: usize| -> Result<f64, EngineError> {
            match annotator {
                Annotator::Provenance => Ok(request.provenance[index]),
                Annotator::ContainsAnswer => {
                    let passage = &request.passages[index];
                    let text = format!("{}\n{}", passage.title, passage.text);
                    Ok(lexical::contains(&text, &request.references))
                }
                Annotator::LlmJudgement => {
                    let [yes, no] = planned.judgements[index];
                    Ok(sigmoid(sum(yes) - sum(no)))
                }
                _ => score(annotator, &single[index], &context_free, request).ok_or_else(two_way),
            }
        };
        let column: Result<Vec<f64>, EngineError> = (0..request.passages.len()).map(of).collect();
        labels.push((annotator, column?));
    }
    let whole_of = |number: usize| whole.get(*planned.whole_of.get(number)?);
    let end_to_end = |number: usize| -> Vec<Option<f64>> {
        let scores = whole_of(number);
        request.annotators.iter().map(|annotator| score(*annotator, scores?, &context_free, request)).collect()
    };
    let end_to_end = (0..request.rankings().len()).map(end_to_end).collect();
    let answer = |context: &usize| whole[*context].answer.clone();
    let answers = planned.whole_of.iter().map(answer).collect();
    let mut warnings = Vec::new();
    let shortened = planned.drawing.prompts.cut.iter().filter(|dropped| **dropped > 0).count();
    if shortened > 0 {
        warnings.push(format!("{shortened} passages were cut to fit"));
    }
    usage.naive_tokens = planned.judgement_tokens + planned.drawing.naive_tokens(&outcome);
    usage.tokenise_ms = tokenise_ms;
    usage.total_ms = milliseconds(started);
    let judged_pairs = verdicts.judged;
    Ok(Labelled {
        labels,
        end_to_end,
        passage_answers: single.into_iter().filter_map(|scores| scores.answer).collect(),
        answers,
        usage,
        judged_pairs,
        warnings,
    })
}

fn two_way() -> EngineError {
    EngineError::Precondition("the entailment model is two-way: hard SePer needs a three-way model".into())
}

fn plan_question(engine: &Engine, request: &EvaluateRequest) -> Result<QuestionPlan, EngineError> {
    let asked = Asked {
        question: &request.question,
        passages: &request.passages,
        passage_tokens: request.passage_tokens,
        truncate: request.truncate,
    };
    let end_to_end = request.end_to_end && request.has(Annotator::scores_answers);
    let contexts = if end_to_end { request.contexts() } else { Vec::new() };
    let longest = contexts.iter().map(Vec::len).max().unwrap_or(1).max(1);
    let greedy = request.greedy();
    let generator = engine.generator()?;
    let language = &generator.language;
    // The prompt of a judgement has more text around its passage than that of an answer.
    let judging = judgement::overhead(language).saturating_sub(answers::overhead(language));
    let room = greedy.most_tokens().max(request.sampling.most_tokens()).max(judging);
    let mut drawing = Drawing::new(engine, &generator, asked, (longest, room), &greedy)?;
    let lexical = request.has(|annotator| annotator.lexical().is_some());
    let beliefs = request.has(Annotator::is_belief);
    let mut context = |order: &[usize], lexical: bool| ContextNodes {
        greedy: if lexical { drawing.draw(&request.question, order, &greedy).first().copied() } else { None },
        samples: if beliefs { drawing.draw(&request.question, order, &request.sampling) } else { Vec::new() },
    };
    let single = (0..request.passages.len()).map(|index| context(&[index], lexical)).collect();
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
    let whole = distinct.into_iter().map(|order| context(order, lexical)).collect();
    let context_free = if request.has(Annotator::is_delta) { context(&[], false) } else { ContextNodes::default() };
    let (mut judgements, mut judgement_tokens) = (Vec::new(), 0);
    if request.has(|annotator| annotator == Annotator::LlmJudgement) {
        let judgement = judgement::JudgementPrompt::new(language, &request.question);
        for index in 0..request.passages.len() {
            let prompts = judgement.verdicts(drawing.prompts.passage(index));
            judgements.push(prompts.map(|segments| {
                // The last token is predicted and never evaluated.
                judgement_tokens += segments.iter().map(|segment| segment.tokens.len()).sum::<usize>() - 1;
                let path = drawing.plan.add(&segments);
                path[path.len() - 1]
            }));
        }
    }
    Ok(QuestionPlan { drawing, single, whole, whole_of, context_free, judgements, judgement_tokens })
}

async fn measure_context(
    drawing: &Drawing,
    context: &ContextNodes,
    outcome: &Outcome,
    request: &EvaluateRequest,
    verdicts: &mut Verdicts<'_>,
) -> Result<ContextScores, EngineError> {
    let mut scores = ContextScores::default();
    if let Some(node) = context.greedy {
        scores.answer = Some(drawing.answer_at(outcome, node)?);
    }
    if context.samples.is_empty() {
        return Ok(scores);
    }
    let answers = context.samples.iter().map(|node| drawing.answer_at(outcome, *node));
    let responses: Vec<Response> = answers
        .map(|answer| answer.map(|answer| Response { likelihood: answer.likelihood(), text: answer.text }))
        .collect::<Result<_, _>>()?;
    if request.has(Annotator::is_hard) {
        let belief = measure(verdicts, &responses, &request.references, &request.measure).await?;
        scores.soft = belief.seper_soft.map(|soft| soft.value);
        scores.hard = belief.seper_hard.map(|hard| hard.value);
    } else {
        let soft = measure_soft(verdicts, &responses, &request.references, &request.measure).await?;
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
        Annotator::SeperSoft => scores.soft,
        Annotator::SeperHard => scores.hard,
        Annotator::DeltaSeperSoft => Some(scores.soft? - context_free.soft?),
        Annotator::DeltaSeperHard => Some(scores.hard? - context_free.hard?),
        lexical => Some(lexical.lexical()?(&scores.answer.as_ref()?.text, &request.references)),
    }
}
