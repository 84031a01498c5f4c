//! Constrained samples and the methods that rank a list at once, on the default generator with its weights.

use std::sync::Arc;

use crate::common;
use common::real_engine;
use engine::methods;
use engine::types::{Passage, RerankRequest};
use numeric::logspace::log_sum_exp;
use numeric::sampling::Sampling;
use prefix_scheduler::plan::{Allowed, Finish, Grow, Plan, Segment, Stop, Token};

const TEXTS: [&str; 4] = [
    "Rye flour absorbs more water than wheat, and a long rest keeps the crust from tearing.",
    "The looms of Harrowgate were driven by water from the River Senn, led over a weir above the town.",
    "In the opening, bring out knights before bishops and castle early.",
    "The station of Harrowgate closed in 1964 [2] and houses a museum of signal lamps.",
];
const QUERY: &str = "Which river drove the looms of Harrowgate?";

/// A label that was not drawn yet, then the tokens of the separator.
struct Listed {
    labels: Vec<Token>,
    separator: Vec<Token>,
}

impl Allowed for Listed {
    fn after(&self, drawn: &[Token]) -> Vec<Token> {
        match drawn.len() % (self.separator.len() + 1) {
            0 => self.labels.iter().copied().filter(|label| !drawn.contains(label)).collect(),
            place => vec![self.separator[place - 1]],
        }
    }
}

impl Stop for Listed {
    fn ended(&self, _: &[Token]) -> Option<Finish> {
        None
    }
}

/// The log-probability of every label equals scoring all labels at its place and renormalising over the remaining ones,
/// so forced tokens are in the cache like tokens of the prompt.
#[tokio::test]
async fn a_constrained_sample_is_a_permutation_with_the_probabilities_of_its_choices() {
    let engine = real_engine().await;
    let generator = common::generator(&engine);
    let one = |text: &str| {
        let tokens = generator.tokenizer().text(text);
        assert_eq!(tokens.len(), 1, "{text}");
        tokens[0]
    };
    let labels: Vec<Token> = ["A", "B", "C", "D", "E"].into_iter().map(one).collect();
    let listed = Arc::new(Listed { labels: labels.clone(), separator: generator.tokenizer().text("] > [") });
    let prompt = generator.tokenizer().text(&format!("{QUERY} The letters from the best to the worst: ["));
    let every = listed.separator.len() + 1;
    let most = 4 * every + 1;
    for temperature in [0.0, 1.0] {
        let mut plan = Plan::new();
        let leaf = plan.add(&[Segment::context(prompt.clone())])[0];
        let grow = |seed| Grow {
            sampling: Sampling { temperature, ..Sampling::default() },
            most,
            seed,
            stop: Arc::clone(&listed) as Arc<dyn Stop>,
            allowed: Some(Arc::clone(&listed) as Arc<dyn Allowed>),
        };
        let nodes: Vec<_> = (0..3).map(|seed| plan.sample(leaf, grow(seed))).collect();
        let run = |plan: Plan| {
            let generator = Arc::clone(&generator);
            async move { generator.scheduler.run(Arc::new(plan), &common::call(), None).await.unwrap() }
        };
        let outcome = run(plan).await;
        for node in nodes {
            let sample = &outcome.samples[&node];
            let mut drawn: Vec<Token> = sample.tokens.iter().copied().step_by(every).collect();
            for (place, label) in drawn.iter().enumerate() {
                let at = place * every;
                let left = listed.after(&sample.tokens[..at]);
                let mut scored = Plan::new();
                let context = Segment::context([&prompt[..], &sample.tokens[..at]].concat());
                let leaves: Vec<_> = left
                    .iter()
                    .map(|&label| scored.add(&[context.clone(), Segment::scored(vec![label], 0)])[1])
                    .collect();
                let scores = run(scored).await.scores;
                let row: Vec<f64> = leaves.iter().map(|leaf| scores[leaf.0][0]).collect();
                let chosen = left.iter().position(|other| other == label).unwrap();
                let expected = row[chosen] - log_sum_exp(&row);
                let found = sample.log_probabilities[at];
                // The bound of `generator.rs` for one token of 4-bit weights.
                assert!((found - expected).abs() < 1.0, "place {place}: {found} {expected}");
                assert!(temperature > 0.0 || row.iter().all(|other| *other < row[chosen] + 1.0), "greedy: {row:?}");
            }
            drawn.sort_unstable();
            let mut all = labels.clone();
            all.sort_unstable();
            assert_eq!(drawn, all);
        }
    }
}

#[tokio::test]
async fn every_listwise_method_ranks_on_real_weights() {
    let engine = real_engine().await;
    // 23 passages take two windows and numbers of several tokens.
    for (method, count) in [
        ("first", 4),
        ("first", 23),
        ("listwise", 4),
        ("listwise", 23),
        ("permutation-self-consistency", 4),
        ("self-consistency", 4),
    ] {
        let passage = |index: usize| Passage {
            id: index.to_string(),
            text: format!("{} ({index})", TEXTS[index % 4]),
            ..Passage::default()
        };
        let request = RerankRequest {
            query: QUERY.into(),
            passages: (0..count).map(passage).collect(),
            method: methods::find(method),
            ..RerankRequest::default()
        };
        let answer = engine.reranker.rerank(&common::call(), request, None).await.unwrap();
        let mut order: Vec<usize> = answer.passages.iter().map(|passage| passage.index).collect();
        println!("{method} of {count}: {order:?}, {} tokens, {:?}", answer.usage.tokens, answer.warnings);
        order.sort_unstable();
        assert_eq!(order, (0..count).collect::<Vec<_>>(), "{method}");
    }
}
