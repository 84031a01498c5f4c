//! One question: its orders, their first passages as contexts, and the generator's results for each context.

use std::collections::BTreeMap;

use engine::Engine;
use engine::calibrate::Labelled;
use engine::methods;
use engine::types::{
    BeliefRequest, MethodRef, MoiOptions, MoiOutcome, Passage, RerankRequest, SampleOptions, Scheme, UtilityRequest,
};
use prefix_scheduler::call::Call;
use rag_metrics::lexical::{contains, token_f1};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::list::List;

/// Most tokens of an answer.
const ANSWER_TOKENS: usize = 24;

/// Settings for measuring contexts.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    /// Methods whose orders are measured in addition to the default's.
    pub methods: &'a [MethodRef],
    /// Most tokens of a passage.
    pub passage_tokens: usize,
    /// Samples of each context for DeltaSePer; 0 for none.
    pub samples: usize,
    /// Passages that MOI as published orders; 0 for none.
    pub moi: usize,
    /// Uses all passages as a context, too, which takes most of the time.
    pub whole: bool,
}

/// Passages of a context; `None` for all.
pub const SIZES: [Option<usize>; 4] = [Some(1), Some(3), Some(5), None];

/// The measures, by name, with their units.
pub const MEASURES: [(&str, &str); 4] = [
    ("log P(reference)", "nats"),
    ("answer contains reference", "share"),
    ("token F1", "F1"),
    ("DeltaSePer", "probability"),
];

/// The values of [`MEASURES`] by order and by index of [`SIZES`]; NaN if not measured.
pub type Values = BTreeMap<(String, usize), [f64; 4]>;

/// The orders of a list, each with its name.
async fn orders(
    engine: &Engine,
    list: &List,
    seed: u64,
    settings: Settings<'_>,
) -> anyhow::Result<Vec<(String, Vec<usize>)>> {
    let n = list.passages.len();
    let given: Vec<usize> = (0..n).collect();
    let mut oracle = given.clone();
    oracle.sort_by_key(|&index| !list.relevant[index]);
    let mut random = given.clone();
    random.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let request = request(list, settings);
    let ranked = |request: RerankRequest| async {
        let answer = engine.reranker.rerank(&Call::local(), request, None).await?;
        anyhow::Ok(answer.passages.iter().map(|passage| passage.index).collect::<Vec<usize>>())
    };
    let mut orders = vec![
        ("retriever".to_owned(), given),
        ("default".to_owned(), ranked(request.clone()).await?),
        ("random".to_owned(), random),
        ("relevant first".to_owned(), oracle),
    ];
    for &method in settings.methods {
        let request = RerankRequest { method: Some(method), ..request.clone() };
        orders.push((method.name().to_owned(), ranked(request).await?));
    }
    if settings.moi > 0 {
        // The paper's outcome is P(query | order) P(order) (Eq. 3).
        let outcome = MoiOutcome::Joint;
        let moi =
            MoiOptions { scheme: Some(Scheme::Random), paper_objective: true, outcome, seed, ..MoiOptions::default() };
        let passages = list.passages[..n.min(settings.moi)].to_vec();
        let method = methods::find("moi");
        let mut order = ranked(RerankRequest { passages, method, moi, ..request }).await?;
        order.extend(settings.moi.min(n)..n);
        orders.push(("MOI as published".to_owned(), order));
    }
    Ok(orders)
}

fn request(list: &List, settings: Settings<'_>) -> RerankRequest {
    RerankRequest {
        query: list.question.clone(),
        passages: list.passages.clone(),
        passage_tokens: Some(settings.passage_tokens),
        ..RerankRequest::default()
    }
}

/// These passages, best first, in the order of the server's context.
async fn arranged(engine: &Engine, list: &List, best: &[usize], settings: Settings<'_>) -> anyhow::Result<Vec<usize>> {
    let passages =
        best.iter().map(|&index| Passage { retriever_score: None, ..list.passages[index].clone() }).collect();
    let request = RerankRequest { passages, method: methods::find("retriever"), ..request(list, settings) };
    let order = engine.reranker.rerank(&Call::local(), request, None).await?.arrangement.order;
    Ok(order.into_iter().map(|place| best[place]).collect())
}

/// Measures every order of a list at every size.
pub async fn question(engine: &Engine, list: &List, seed: u64, settings: Settings<'_>) -> anyhow::Result<Values> {
    let mut wanted: Vec<(String, usize, Vec<usize>)> = Vec::new();
    for (name, order) in orders(engine, list, seed, settings).await? {
        for (at, size) in SIZES.iter().enumerate().filter(|(_, size)| size.is_some() || settings.whole) {
            let context = order[..size.unwrap_or(order.len()).min(order.len())].to_vec();
            // The best passage last: this wins if the generator reads the end of a prompt best.
            if name == "default" && context.len() > 1 {
                wanted.push(("default, best last".to_owned(), at, context.iter().rev().copied().collect()));
            }
            wanted.push((name.clone(), at, context));
        }
    }
    // The context of a caller with this many results: by the profile that applies, else best first.
    let default: Vec<(usize, Vec<usize>)> =
        wanted.iter().filter(|one| one.0 == "default").map(|(_, at, context)| (*at, context.clone())).collect();
    for (at, context) in default {
        let order = arranged(engine, list, &context, settings).await?;
        wanted.push(("default, as the server arranges it".to_owned(), at, order));
    }
    let mut contexts: Vec<Vec<usize>> = wanted.iter().map(|one| one.2.clone()).collect();
    contexts.sort();
    contexts.dedup();
    let measured = measure(engine, list, &contexts, settings).await?;
    let value = |context: &Vec<usize>| measured[contexts.binary_search(context).expect("every context is measured")];
    Ok(wanted.iter().map(|(name, at, context)| ((name.clone(), *at), value(context))).collect())
}

async fn measure(
    engine: &Engine,
    list: &List,
    contexts: &[Vec<usize>],
    settings: Settings<'_>,
) -> anyhow::Result<Vec<[f64; 4]>> {
    let (call, passage_tokens) = (Call::local(), Some(settings.passage_tokens));
    let task = Labelled {
        question: list.question.clone(),
        answer: list.answers[0].clone(),
        passages: list.passages.clone(),
        gold: Vec::new(),
        passage_tokens,
    };
    let likelihoods = engine.positions.likelihoods(&call, &task, contexts).await?;
    let greedy = BeliefRequest {
        question: list.question.clone(),
        passages: list.passages.clone(),
        contexts: contexts.to_vec(),
        options: SampleOptions { max_tokens: Some(ANSWER_TOKENS), ..SampleOptions::greedy() },
        passage_tokens,
        ..BeliefRequest::default()
    };
    let answered = engine.sampler.sample(&call, greedy, None).await?;
    let mut deltas = vec![f64::NAN; contexts.len()];
    if settings.samples > 0 {
        let utility = UtilityRequest {
            question: list.question.clone(),
            passages: list.passages.clone(),
            references: list.answers.clone(),
            subsets: contexts.to_vec(),
            sampling: SampleOptions {
                samples: Some(settings.samples),
                max_tokens: Some(ANSWER_TOKENS),
                ..SampleOptions::default()
            },
            passage_tokens,
            ..UtilityRequest::default()
        };
        let report = engine.utility.measure(&call, utility, None).await?;
        deltas = report.utilities.iter().map(|one| one.delta_soft.map_or(f64::NAN, |delta| delta.value)).collect();
    }
    let rows = likelihoods.iter().zip(&answered.answers).zip(deltas).map(|((likelihood, answers), delta)| {
        let text = answers.first().map_or("", |answer| answer.text.as_str());
        [*likelihood, contains(text, &list.answers), token_f1(text, &list.answers), delta]
    });
    Ok(rows.collect())
}
