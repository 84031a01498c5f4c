//! The three methods with given likelihoods of the answer after every list of passages, without a model.

use std::collections::HashMap;

use super::*;
use crate::methods::baselines::answer_likelihood::AnswerLikelihood;
use crate::methods::baselines::leave_one_out::LeaveOneOut;
use crate::methods::context_cite::ContextCite;
use crate::methods::{Method, find};
use crate::types::Passage;
use prefix_scheduler::model::PromptFormat;
use prefix_scheduler::plan::{Finish, NodeId, Plan};
use prefix_scheduler::scheduler::generator::Sample;
use prefix_scheduler::scripted::{ByteTokenizer, END};

/// Token numbers from here on are passages; text is bytes.
const PASSAGE: Token = 1_000;
const UNBOUNDED: Budget = Budget { tokens: usize::MAX, context: usize::MAX, counted: usize::MAX, kept: None };

fn task(n: usize) -> Arc<Task> {
    let language = Language::new(Arc::new(ByteTokenizer::default()), PromptFormat::Plain);
    let request = RerankRequest { passages: vec![Passage::default(); n], ..RerankRequest::default() };
    let passages = (PASSAGE..).take(n).map(|token| Arc::from([token])).collect();
    Arc::new(Task { query: language.query("who?"), language: Some(language), request, passages, mixed_model: None })
}

/// Passages of a prompt, by index.
fn order(prompt: &Prompt) -> Vec<usize> {
    let first = prompt.segments.iter().map(|segment| segment.tokens[0]);
    first.filter_map(|token| usize::try_from(token - PASSAGE).ok()).collect()
}

/// Passage evaluations of prompts; a shared prefix counts once.
fn blocks(prompts: &[Prompt]) -> usize {
    let mut plan = Plan::new();
    for prompt in prompts {
        prompt.add_to(&mut plan);
    }
    (0..plan.len()).filter(|node| plan.path(NodeId(*node)).last().is_some_and(|token| *token >= PASSAGE)).count()
}

/// Gives a method the likelihoods of its prompts, with the answer `drawn`. Also returns the rounds.
fn run(
    method: &dyn Method,
    n: usize,
    drawn: &[Token],
    likelihood: impl Fn(&[usize]) -> f64,
) -> (Scored, Vec<Vec<Prompt>>) {
    let (call, mut rounds, mut announced) = (Call::local(), Vec::<Vec<Prompt>>::new(), 0);
    let mut ranking = method.begin(task(n)).unwrap();
    while let Some(prompts) = ranking.next(&UNBOUNDED, &call).unwrap() {
        if let Some(drawing) = rounds.first() {
            let whole = order(&drawing[0]);
            let alike = |prompt| order(prompt).iter().zip(&whole).take_while(|(one, other)| one == other).count();
            assert_eq!(prompts.iter().map(alike).max(), Some(announced), "passages that the second round begins with");
        }
        announced = ranking.shares();
        let mut plan = Plan::new();
        let mut scores = Scores::default();
        let mut paths = Vec::new();
        for (number, prompt) in prompts.iter().enumerate() {
            let (path, grown) = prompt.add_to(&mut plan);
            let sum = likelihood(&order(prompt));
            if grown.is_some() {
                // All of it is the first token's. The end token is unlikely and does not count.
                let mut log_probabilities = vec![0.0; drawn.len()];
                log_probabilities[0] = sum;
                log_probabilities[drawn.len() - 1] -= 100.0;
                let sample = Sample { tokens: drawn.to_vec(), log_probabilities, finish: Finish::StopString };
                scores.samples.insert(number, sample);
            } else {
                let answer = prompt.segments.last().unwrap().tokens.len();
                scores.nodes.insert(*path.last().unwrap(), vec![sum / real(answer); answer]);
            }
            paths.push(path);
        }
        scores.missing = vec![0; paths.len()];
        scores.paths = Arc::new(paths);
        ranking.absorb(&scores, &call).unwrap();
        rounds.push(prompts);
    }
    (ranking.finish(&call).unwrap(), rounds)
}

fn tokens(text: &str) -> Vec<Token> {
    text.bytes().map(Token::from).collect()
}

fn close(utilities: &[f64], expected: &[f64]) {
    let near = utilities.iter().zip(expected).all(|(left, right)| (left - right).abs() < 1e-9);
    assert!(near && utilities.len() == expected.len(), "{utilities:?} {expected:?}");
}

fn methods() -> [&'static dyn Method; 3] {
    [&AnswerLikelihood, &LeaveOneOut, &ContextCite]
}

/// The design notes' numbers: C distracts.
#[test]
fn leave_one_out_by_hand() {
    let likelihood = |order: &[usize]| match order {
        [0, 1, 2] => -2.0,
        [1, 2] => -5.0,
        [0, 2] => -2.1,
        [0, 1] => -1.5,
        _ => -9.0,
    };
    let (scored, _) = run(&LeaveOneOut, 3, &tokens(" Ada\n"), likelihood);
    close(&scored.utilities, &[3.0, 0.1, -0.5]);
    assert_eq!((scored.ranking, scored.unit), (vec![0, 1, 2], 4.0));
}

#[test]
fn answer_likelihood_by_hand() {
    let likelihood = |order: &[usize]| match order {
        [0, 1, 2] => -1.0,
        [0] => -6.0,
        [1] => -2.0,
        // The third only, and none.
        _ => -5.0,
    };
    let (scored, _) = run(&AnswerLikelihood, 3, &tokens(" Ada\n"), likelihood);
    close(&scored.utilities, &[-1.0, 3.0, 0.0]);
    assert_eq!((scored.ranking, scored.unit), (vec![1, 2, 0], 4.0));
}

/// All passages came back with "no zero" as the reason, although a usual answer of the method has one.
#[test]
fn an_answer_that_no_passage_makes_likelier_has_the_methods_zero() {
    for method in methods() {
        let (scored, _) = run(method, 2, &tokens(" a\n"), |_| -3.0);
        assert_eq!(scored.has_zero, method.name() == "answer-likelihood", "{}", method.name());
        close(&scored.utilities, &[0.0, 0.0]);
    }
}

/// One passage is all passages, and without it there are none.
#[test]
fn one_passage() {
    let likelihood = |order: &[usize]| if order.is_empty() { -4.0 } else { -1.0 };
    for method in methods() {
        let (scored, rounds) = run(method, 1, &tokens(" a\n"), likelihood);
        assert_eq!((scored.ranking, rounds.len()), (vec![0], 2), "{}", method.name());
        match method.name() {
            // Half the difference of the logits per token, minus the penalty, scaled back: (0.5 d / 2 - 0.01) · 2 ·
            // 2.
            "context-cite" => {
                let logit = |l: f64| l - (1.0 - l.exp()).ln();
                close(&scored.utilities, &[logit(-1.0) - logit(-4.0) - 0.04]);
            }
            _ => close(&scored.utilities, &[3.0]),
        }
    }
}

#[test]
fn an_empty_answer_keeps_the_given_order_and_costs_no_second_round() {
    for (method, drawn) in methods().into_iter().flat_map(|method| [(method, tokens(" \n")), (method, vec![END])]) {
        let (scored, rounds) = run(method, 3, &drawn, |order| -real(order.len()));
        assert_eq!((scored.ranking, scored.utilities, rounds.len()), (vec![0, 1, 2], vec![0.0; 3], 1));
        assert_eq!(scored.warnings, vec![EMPTY.to_owned()]);
    }
}

#[test]
fn an_answer_that_the_passages_do_not_make_likelier_keeps_the_given_order() {
    for method in methods() {
        for all in [-3.0, -4.0] {
            let likelihood = |order: &[usize]| match order.len() {
                0 => -3.0,
                3 => all,
                _ => -1.0 - real(order[0]),
            };
            let (scored, rounds) = run(method, 3, &tokens(" a\n"), likelihood);
            assert_eq!((scored.ranking, scored.utilities, rounds.len()), (vec![0, 1, 2], vec![0.0; 3], 2));
            assert_eq!(scored.warnings, vec![NOT_LIKELIER.to_owned()]);
        }
    }
}

#[test]
fn the_drawn_tokens_are_scored_without_what_ended_them() {
    for method in methods() {
        for end in [tokens("\n"), tokens(" \n"), vec![END]] {
            let drawn = [tokens(" Zoë"), end].concat();
            let (_, rounds) = run(method, 2, &drawn, |order| -10.0 + real(order.len()));
            for prompt in &rounds[1] {
                let last = prompt.segments.last().unwrap();
                assert_eq!((&last.tokens[..], last.scored_from), (&tokens(" Zoë")[..], Some(0)));
            }
        }
    }
}

/// The counts of the design notes, which list the answer's own N passage evaluations separately.
#[test]
fn shared_blocks() {
    for n in [1, 2, 10, 20] {
        let rounds = |method| run(method, n, &tokens(" a\n"), |order| -30.0 + real(order.len())).1;
        let (forward, backward, cited) = (rounds(&AnswerLikelihood), rounds(&LeaveOneOut), rounds(&ContextCite));
        assert!([&forward, &backward, &cited].iter().all(|rounds| blocks(&rounds[0]) == n));
        assert_eq!((blocks(&forward[1]), blocks(&backward[1])), (n, n * (n + 1) / 2));
        // No passage, and 32 subsets or all of them.
        assert_eq!(cited[1].len(), 1 + 32.min(1 << n));
        let naive: usize = cited[1].iter().map(|prompt| order(prompt).len()).sum();
        assert!(blocks(&cited[1]) <= naive);
        if n >= 10 {
            // 160 and 97 are expected of 10 passages, 320 and 259 of 20.
            let expected = if n == 10 { (160, 97) } else { (320, 259) };
            assert!(naive.abs_diff(expected.0) < 40 && blocks(&cited[1]).abs_diff(expected.1) < 35, "{n}: {naive}");
        }
    }
}

/// Both rounds are refused before the first; with one token more the first begins.
#[test]
fn a_second_round_that_cannot_fit_is_refused_before_the_first() {
    for method in methods() {
        let begin = |tokens: usize| {
            let budget = Budget { tokens, ..UNBOUNDED };
            method.begin(task(4)).unwrap().next(&budget, &Call::local())
        };
        let Err(EngineError::Budget { needed, allowed: 10 }) = begin(10) else { panic!("not refused") };
        assert!(begin(needed - 1).is_err() && begin(needed).is_ok(), "{}", method.name());
        let first = Budget::cost(&begin(needed).unwrap().unwrap()).tokens;
        // The tokens in the message suffice for both: the driver counts the drawn answer in full.
        let (_, rounds) = run(method, 4, &tokens("a\n"), |_| -1.0);
        assert_eq!(first + Budget::cost(&rounds[1]).tokens, needed, "{}", method.name());
    }
}

#[test]
fn the_longest_prompt_has_room_for_the_answer() {
    let task = task(3);
    let language = task.language.as_ref().unwrap();
    for method in methods() {
        let shape = method.prompts(&task.request, language).unwrap();
        assert_eq!(shape.longest, 3);
        let prompts = method.begin(Arc::clone(&task)).unwrap().next(&UNBOUNDED, &Call::local()).unwrap().unwrap();
        let longest = Budget::cost(&prompts).path_cells;
        // The last token of the answer is drawn, not evaluated.
        assert!(longest < shape.overhead + task.query.len() + 3, "{longest}");
        assert!(find(method.name()).is_some());
    }
}

/// The subsets depend only on the seed, so equal requests score equal prompts.
#[test]
fn equal_tasks_score_equal_prompts() {
    let orders = || {
        let (_, rounds) = run(&ContextCite, 9, &tokens(" a\n"), |order| -30.0 + real(order.len()));
        rounds[1].iter().map(order).collect::<Vec<_>>()
    };
    let first = orders();
    assert_eq!(first, orders());
    let counts: HashMap<usize, usize> = first.iter().flatten().fold(HashMap::new(), |mut counts, passage| {
        *counts.entry(*passage).or_default() += 1;
        counts
    });
    assert_eq!(counts.len(), 9);
}
