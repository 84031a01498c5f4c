//! Helpers for tests of methods: a task without a server, and a loop that answers prompts from a function.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{Budget, Method, Prompt, Scored, Scores, Task, cascade};
use crate::prompt::Language;
use crate::types::{Passage, RankingStage, RerankRequest};
use prefix_scheduler::call::Call;
use prefix_scheduler::model::PromptFormat;
use prefix_scheduler::plan::{NodeId, Token};
use prefix_scheduler::scripted::ByteTokenizer;

/// First token of passage 0. The tokenizer's own tokens are bytes and the prompt prefix, which are smaller.
const FIRST: Token = 1_000;

/// This many passages of eight tokens.
pub(super) fn task(passages: usize) -> Arc<Task> {
    let language = Language::new(Arc::new(ByteTokenizer::default()), PromptFormat::Plain);
    let query = language.query("who?");
    let tokens = |index: usize| vec![FIRST + Token::try_from(index).unwrap(); 8].into();
    let request = RerankRequest { passages: vec![Passage::default(); passages], ..RerankRequest::default() };
    Arc::new(Task {
        request,
        language: Some(language),
        passages: (0..passages).map(tokens).collect(),
        query,
        mixed_model: None,
    })
}

/// The passages of a prompt, in order.
pub(super) fn order(prompt: &Prompt) -> Vec<usize> {
    let passages = prompt.segments.iter().filter_map(|segment| usize::try_from(segment.tokens[0] - FIRST).ok());
    passages.collect()
}

/// Number of the label at the end of a prompt.
pub(super) fn label(prompt: &Prompt) -> usize {
    let last = prompt.segments.last().and_then(|segment| segment.tokens.last()).copied().unwrap();
    usize::try_from(last - Token::from(b'A')).unwrap()
}

/// Passage evaluations of these prompts: passages after the same passages count once.
pub(super) fn blocks(prompts: &[Prompt]) -> usize {
    let orders: Vec<Vec<usize>> = prompts.iter().map(order).collect();
    let beginnings = orders.iter().flat_map(|order| (1..=order.len()).map(|length| &order[..length]));
    beginnings.collect::<HashSet<_>>().len()
}

/// Labels with log-odds from a table of scores, one per passage.
pub(super) fn by_table(table: &[f64]) -> impl Fn(&Prompt) -> f64 {
    move |prompt| table[order(prompt)[label(prompt)]]
}

/// Numbers in [0, 1), the same for the same seed (SplitMix64).
pub(super) fn noise(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        f64::from(u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap()) / 4_294_967_296.0
    }
}

/// Scores of prompts whose last segments have these log-probabilities.
fn scores(prompts: &[Prompt], answer: &dyn Fn(&Prompt) -> f64) -> Scores {
    let mut nodes = HashMap::new();
    let mut path = |(number, prompt): (usize, &Prompt)| {
        let path: Vec<NodeId> = (0..prompt.segments.len()).map(|segment| NodeId(100 * number + segment)).collect();
        nodes.insert(path[path.len() - 1], vec![answer(prompt)]);
        path
    };
    let paths: Vec<Vec<NodeId>> = prompts.iter().enumerate().map(&mut path).collect();
    Scores { missing: vec![0; paths.len()], paths: Arc::new(paths), nodes, ..Scores::default() }
}

/// The most leading passages that a prompt of one round shares with a prompt of another.
fn common(earlier: &[Prompt], later: &[Prompt]) -> usize {
    let orders = |prompts: &[Prompt]| prompts.iter().map(order).collect::<Vec<_>>();
    let (earlier, later) = (orders(earlier), orders(later));
    let alike = |one: &[usize], other: &[usize]| one.iter().zip(other).take_while(|(one, other)| one == other).count();
    later.iter().flat_map(|one| earlier.iter().map(|other| alike(one, other))).max().unwrap_or(0)
}

/// The needs and the result of a method.
pub(super) struct Ran {
    pub rounds: Vec<Vec<Prompt>>,
    pub scored: Scored,
}

/// Runs a method on this many passages, within this many tokens.
pub(super) fn run(method: &dyn Method, passages: usize, tokens: usize, answer: &dyn Fn(&Prompt) -> f64) -> Ran {
    run_on(method, task(passages), tokens, answer)
}

/// Runs a method on a task.
pub(super) fn run_on(method: &dyn Method, task: Arc<Task>, tokens: usize, answer: &dyn Fn(&Prompt) -> f64) -> Ran {
    let passages = task.passages.len();
    let (mut ranking, call) = (method.begin(task).unwrap(), Call::local());
    let (mut rounds, mut announced, mut spent) = (Vec::<Vec<Prompt>>::new(), Vec::new(), 0);
    while let Some(prompts) = ranking
        .next(&Budget { tokens: tokens - spent, context: usize::MAX, counted: usize::MAX, kept: None }, &call)
        .unwrap()
    {
        spent += Budget::cost(&prompts).tokens;
        assert!(rounds.len() < 1_000, "rounds without end");
        let unannounced = |(earlier, announced): (&Vec<Prompt>, &usize)| common(earlier, &prompts) > *announced;
        assert!(
            !rounds.iter().zip(&announced).any(unannounced),
            "a round shares more with an earlier one than was announced: {announced:?}"
        );
        announced.push(ranking.shares());
        ranking.absorb(&scores(&prompts, answer), &call).unwrap();
        rounds.push(prompts);
    }
    let scored = ranking.finish(&call).unwrap();
    assert!(scored.utilities.len() == passages && scored.utilities.iter().all(|utility| utility.is_finite()));
    assert_eq!(scored.ranking.iter().collect::<HashSet<_>>().len(), passages, "not a permutation");
    Ran { rounds, scored }
}

/// Stage 3 placed three passages; the third fell below single-passage values. The others keep their values, so that
/// a threshold does not drop them because of it.
#[test]
fn a_passage_that_stage_three_lowers_does_not_lower_what_follows() {
    let stages = [
        RankingStage::Together,
        RankingStage::Together,
        RankingStage::Together,
        RankingStage::Alone,
        RankingStage::Alone,
        RankingStage::Retriever,
    ];
    let alone = [30.0, 29.9, 29.5, 29.0, 28.0, f64::NAN];
    let together = [40.0, 30.0, 19.4, 29.0, 28.0, f64::NAN];
    let (values, ranking) = cascade::placed(&stages, &alone, &together, &[0, 1, 2, 3, 4, 5]);
    assert_eq!(ranking, [0, 1, 2, 3, 4, 5]);
    assert_eq!(values, [40.0, 30.0, 29.0, 29.0, 28.0, 0.0]);
}
