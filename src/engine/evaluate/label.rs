//! The labels: one plan for all prompts of a question, then its answers measured.

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

/// What all annotators say.
pub(super) struct Labelled {
    /// Labels by annotator, one a passage.
    pub labels: Vec<(Annotator, Vec<f64>)>,
    /// For each ranking its score by each annotator.
    pub end_to_end: Vec<Vec<Option<f64>>>,
    /// Greedy answers, one a passage or none.
    pub passage_answers: Vec<Answer>,
    /// Greedy answers, one a ranking or none.
    pub answers: Vec<Answer>,
    pub usage: Usage,
    pub judged_pairs: usize,
    pub warnings: Vec<String>,
}

/// The nodes of one context.
#[derive(Debug, Clone, Default)]
struct Context {
    greedy: Option<NodeId>,
    samples: Vec<NodeId>,
}

/// The whole plan with what stands where.
struct LaidOut {
    drawing: Drawing,
    /// One a passage; no nodes where no annotator needs answers.
    alone: Vec<Context>,
    /// One a ranking, where end-to-end answers are wanted.
    whole: Vec<Context>,
    without: Context,
    /// For each passage the scored Yes and the scored No.
    verdicts: Vec<[NodeId; 2]>,
    /// Tokens of those prompts, each from its beginning.
    verdict_tokens: usize,
}

/// What is known of one context.
#[derive(Debug, Clone, Default)]
struct Known {
    answer: Option<Answer>,
    soft: Option<f64>,
    hard: Option<f64>,
}

pub(super) async fn label(engine: &Engine, call: &Call, request: &EvaluateRequest) -> Result<Labelled, EngineError> {
    let started = Instant::now();
    let (laying, inner) = (engine.clone(), request.clone());
    let mut laid_out = call.compute(move |_| lay_out(&laying, &inner)).await?;
    let tokenise_ms = milliseconds(started);
    let plan = std::mem::take(&mut laid_out.drawing.plan);
    let (outcome, mut usage) = if plan.is_empty() {
        (Outcome::default(), Usage::default())
    } else {
        engine.carry_out(call, plan, request.token_budget, None::<fn(Event)>).await?
    };
    let question = request.measure.conditioned.then_some(request.question.as_str());
    let mut verdicts = Verdicts::new(engine.models().judge_if_any(), question, call, engine.limits().pairs);
    let without = know(&laid_out.drawing, &laid_out.without, &outcome, request, &mut verdicts).await?;
    let mut alone = Vec::with_capacity(laid_out.alone.len());
    for context in &laid_out.alone {
        alone.push(know(&laid_out.drawing, context, &outcome, request, &mut verdicts).await?);
    }
    let mut whole = Vec::with_capacity(laid_out.whole.len());
    for context in &laid_out.whole {
        whole.push(know(&laid_out.drawing, context, &outcome, request, &mut verdicts).await?);
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
                    let [yes, no] = laid_out.verdicts[index];
                    Ok(sigmoid(sum(yes) - sum(no)))
                }
                _ => score(annotator, &alone[index], &without, request).ok_or_else(two_way),
            }
        };
        let column: Result<Vec<f64>, EngineError> = (0..request.passages.len()).map(of).collect();
        labels.push((annotator, column?));
    }
    let end_to_end = |number: usize| -> Vec<Option<f64>> {
        let known = whole.get(number);
        request.annotators.iter().map(|annotator| score(*annotator, known?, &without, request)).collect()
    };
    let end_to_end = (0..request.rankings().len()).map(end_to_end).collect();
    let mut warnings = Vec::new();
    let shortened = laid_out.drawing.prompts.cut.iter().filter(|dropped| **dropped > 0).count();
    if shortened > 0 {
        warnings.push(format!("{shortened} passages were cut to fit"));
    }
    usage.naive_tokens = laid_out.verdict_tokens + laid_out.drawing.naive_tokens(&outcome);
    usage.tokenise_ms = tokenise_ms;
    usage.total_ms = milliseconds(started);
    let judged_pairs = verdicts.judged;
    Ok(Labelled {
        labels,
        end_to_end,
        passage_answers: alone.into_iter().filter_map(|known| known.answer).collect(),
        answers: whole.into_iter().filter_map(|known| known.answer).collect(),
        usage,
        judged_pairs,
        warnings,
    })
}

fn two_way() -> EngineError {
    EngineError::Precondition("the entailment model is two-way: hard SePer needs a three-way model".into())
}

fn lay_out(engine: &Engine, request: &EvaluateRequest) -> Result<LaidOut, EngineError> {
    let asked = Asked {
        question: &request.question,
        passages: &request.passages,
        passage_tokens: request.passage_tokens,
        truncate: request.truncate,
    };
    let rankings = request.rankings();
    let answered = request.has(Annotator::scores_answers);
    let longest = if request.end_to_end { rankings.iter().map(Vec::len).max().unwrap_or(1) } else { 1 };
    let greedy = request.greedy();
    // A judgement asks for more around its passage than an answer does.
    let generator = engine.generator()?;
    let language = &generator.language;
    let judging = judgement::overhead(language).saturating_sub(answers::overhead(language));
    let room = greedy.most_tokens().max(request.sampling.most_tokens()).max(judging);
    let mut drawing = Drawing::new(engine, &generator, asked, (longest, room), &greedy)?;
    let lexical = request.has(|annotator| annotator.lexical().is_some());
    let beliefs = request.has(Annotator::is_belief);
    let mut context = |order: &[usize], lexical: bool| Context {
        greedy: if lexical { drawing.draw(&request.question, order, &greedy).first().copied() } else { None },
        samples: if beliefs { drawing.draw(&request.question, order, &request.sampling) } else { Vec::new() },
    };
    let alone = (0..request.passages.len()).map(|index| context(&[index], lexical)).collect();
    let ends = if request.end_to_end && answered { &rankings[..] } else { &[] };
    let whole = ends.iter().map(|order| context(order, lexical)).collect();
    let without = if request.has(Annotator::is_delta) { context(&[], false) } else { Context::default() };
    let (mut verdicts, mut verdict_tokens) = (Vec::new(), 0);
    if request.has(|annotator| annotator == Annotator::LlmJudgement) {
        let judgement = judgement::JudgementPrompt::new(language, &request.question);
        for index in 0..request.passages.len() {
            let prompts = judgement.verdicts(drawing.prompts.passage(index));
            verdicts.push(prompts.map(|segments| {
                // The last token is predicted, never read.
                verdict_tokens += segments.iter().map(|segment| segment.tokens.len()).sum::<usize>() - 1;
                let path = drawing.plan.add(&segments);
                path[path.len() - 1]
            }));
        }
    }
    Ok(LaidOut { drawing, alone, whole, without, verdicts, verdict_tokens })
}

async fn know(
    drawing: &Drawing,
    context: &Context,
    outcome: &Outcome,
    request: &EvaluateRequest,
    verdicts: &mut Verdicts<'_>,
) -> Result<Known, EngineError> {
    let mut known = Known::default();
    if let Some(node) = context.greedy {
        known.answer = Some(drawing.answer_at(outcome, node)?);
    }
    if context.samples.is_empty() {
        return Ok(known);
    }
    let answers = context.samples.iter().map(|node| drawing.answer_at(outcome, *node));
    let responses: Vec<Response> = answers
        .map(|answer| answer.map(|answer| Response { likelihood: answer.likelihood(), text: answer.text }))
        .collect::<Result<_, _>>()?;
    if request.has(Annotator::is_hard) {
        let belief = measure(verdicts, &responses, &request.references, &request.measure).await?;
        known.soft = belief.seper_soft.map(|soft| soft.value);
        known.hard = belief.seper_hard.map(|hard| hard.value);
    } else {
        let soft = measure_soft(verdicts, &responses, &request.references, &request.measure).await?;
        known.soft = soft.map(|soft| soft.value);
    }
    Ok(known)
}

/// An annotator's score of what is known of a context.
fn score(annotator: Annotator, known: &Known, without: &Known, request: &EvaluateRequest) -> Option<f64> {
    match annotator {
        Annotator::SeperSoft => known.soft,
        Annotator::SeperHard => known.hard,
        Annotator::DeltaSeperSoft => Some(known.soft? - without.soft?),
        Annotator::DeltaSeperHard => Some(known.hard? - without.hard?),
        lexical => Some(lexical.lexical()?(&known.answer.as_ref()?.text, &request.references)),
    }
}
