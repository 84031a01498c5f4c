//! Order of scores, turns, limits, faults.

use std::sync::atomic::AtomicUsize;

use tokio::sync::mpsc::unbounded_channel;

use super::work::TURN;
use super::*;
use crate::call::{Admission, Place, Priority, Stopped, Terms};
use crate::model::reranker::{Encoded, TooLong};
use crate::scheduler::ScheduleError;
use crate::scripted::ScriptedReranker;

const WHOLE: Shortening = Shortening { passage_tokens: None, truncate: false, from_start: false };

fn list(query: &str, passages: &[&str]) -> List {
    let passages = passages.iter().map(|text| (*text).to_owned()).collect();
    List { query: query.into(), passages, shortening: WHOLE, tokens: usize::MAX, until: None, preferred: Vec::new() }
}

fn many(passages: usize) -> List {
    List { passages: vec!["one two three".to_owned(); passages].into(), ..list("two", &[]) }
}

/// A worker whose first load fails if `damaged`, and whose model panics at a query of five words.
fn start(delay: Duration, mut damaged: bool) -> (PassageScorer, Arc<AtomicUsize>) {
    let scored = Arc::new(AtomicUsize::new(0));
    let mut model = ScriptedReranker { delay, scored: Arc::clone(&scored), panics_at: Some(5), most: 100 };
    let loader: Loader = Box::new(move |serve| {
        if std::mem::take(&mut damaged) {
            return Err(ModelError::Unusable { path: "x.onnx".into(), problem: "is damaged".into() });
        }
        serve(&mut model);
        Ok(())
    });
    (PassageScorer::start("reranker", ConfiguredModel::default(), None, loader).unwrap(), scored)
}

#[tokio::test]
async fn scores_come_in_the_order_of_the_list() {
    let (scorer, _) = start(Duration::ZERO, false);
    assert_eq!((scorer.info(), scorer.status().borrow().clone()), (None, Status::Idle));
    let passages = ["ab abc abcd", "x", "abc abcd abcde abcdef abcdefg", "ab"];
    let answer = scorer.score(list("ab abc", &passages), &Call::local(), None).await.unwrap();
    assert_eq!(answer.scores, vec![2.0, 0.0, 1.0, 1.0]);
    assert_eq!((answer.tokens, answer.steps, scorer.scored()), (10, 1, 4));
    assert!(scorer.info().is_some());
    let empty = scorer.score(list("ab", &[]), &Call::local(), None).await.unwrap();
    assert_eq!((empty.scores, empty.tokens, empty.steps), (vec![], 0, 0));
}

#[tokio::test]
async fn a_list_that_does_not_fit_is_refused_before_any_work() {
    let (scorer, scored) = start(Duration::ZERO, false);
    let long = "a ".repeat(101);
    let refused = scorer.score(list("ab", &["a", &long]), &Call::local(), None).await.unwrap_err();
    assert_eq!(refused, ScoreError::TooLong { passage: Some(1), length: TooLong { needed: 101, available: 100 } });
    let refused = scorer.score(list(&long, &["a"]), &Call::local(), None).await.unwrap_err();
    assert!(matches!(refused, ScoreError::TooLong { passage: None, .. }), "{refused}");
    let refused = scorer.score(List { tokens: 5, ..many(2) }, &Call::local(), None).await.unwrap_err();
    assert_eq!(refused, ScoreError::Budget { needed: 6, allowed: 5 });
    assert_eq!(scored.load(Ordering::SeqCst), 0);
    let cut = List { shortening: Shortening { truncate: true, ..WHOLE }, ..list("a", &[&long]) };
    assert_eq!(scorer.score(cut, &Call::local(), None).await.unwrap().cut, vec![1]);
    // A query is cut, too: agents send whole messages.
    let cut = List { shortening: Shortening { truncate: true, ..WHOLE }, ..list(&long, &["a"]) };
    assert_eq!(scorer.score(cut, &Call::local(), None).await.unwrap().query_cut, 1);
}

#[tokio::test]
async fn progress_is_told_and_ends_at_the_total() {
    let (scorer, _) = start(Duration::ZERO, false);
    let (sender, mut events) = unbounded_channel();
    scorer.score(many(150), &Call::local(), Some(sender)).await.unwrap();
    let mut seen = Vec::new();
    while let Some(progress) = events.recv().await {
        assert_eq!((progress.total, progress.longest), (450, 3));
        seen.push(progress.done);
    }
    assert_eq!(seen, vec![0, 48, 96, 144, 192, 240, 288, 336, 384, 432, 450]);
}

#[tokio::test]
async fn a_short_list_does_not_wait_for_a_long_one() {
    let (scorer, _) = start(Duration::from_millis(1), false);
    let (other, started) = (scorer.clone(), Instant::now());
    let long =
        tokio::spawn(async move { other.score(many(400), &Call::local(), None).await.map(|_| started.elapsed()) });
    tokio::time::sleep(Duration::from_millis(20)).await;
    scorer.score(many(1), &Call::local(), None).await.unwrap();
    let short = started.elapsed();
    assert!(short * 2 < long.await.unwrap().unwrap(), "{short:?}");
}

#[tokio::test]
async fn deadlines_and_departures_stop_the_work() {
    let (scorer, scored) = start(Duration::from_millis(1), false);
    let hurried = Call::local_with(Some(Instant::now() + Duration::from_millis(50)));
    let late = scorer.score(many(4_000), &hurried, None).await;
    assert_eq!(late, Err(ScheduleError::Stopped(Stopped::DeadlineExceeded).into()));
    let other = scorer.clone();
    let left = tokio::spawn(async move { other.score(many(4_000), &Call::local(), None).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    left.abort();
    scorer.score(many(1), &Call::local(), None).await.unwrap();
    assert!(scored.load(Ordering::SeqCst) < 1_000);
}

#[tokio::test]
async fn a_failed_load_is_reported_and_tried_again() {
    let (scorer, _) = start(Duration::ZERO, true);
    let failed = scorer.score(many(1), &Call::local(), None).await.unwrap_err();
    assert_eq!(failed.to_string(), "x.onnx: is damaged");
    assert!(scorer.score(many(1), &Call::local(), None).await.is_ok());
}

#[tokio::test]
async fn a_fault_fails_its_own_list_only() {
    let (scorer, _) = start(Duration::from_millis(1), false);
    let refused = scorer.score(list("two", &["two", "thirteenbytes"]), &Call::local(), None).await.unwrap_err();
    assert!(refused.to_string().contains("passages[1] is NaN"), "{refused}");
    let other = scorer.clone();
    let long = tokio::spawn(async move { other.score(many(200), &Call::local(), None).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    let panicked = scorer.score(list("a b c d e", &["a"]), &Call::local(), None).await;
    assert_eq!(panicked, Err(ScheduleError::Unavailable.into()));
    assert_eq!(long.await.unwrap().unwrap().scores.len(), 200);
}

fn texts(texts: &[&str]) -> Arc<[String]> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test]
async fn states_come_in_the_order_of_the_texts_over_several_turns() {
    let (scorer, scored) = start(Duration::ZERO, false);
    let given: Vec<String> = (0..200).map(|number| "x".repeat(number % 10 + 1)).collect();
    let states = scorer.states(given.clone().into(), &Call::local()).await.unwrap();
    let lengths: Vec<f32> = states.iter().map(|one| one.values[0]).collect();
    assert_eq!(lengths, given.iter().map(|text| f32::from(u8::try_from(text.len()).unwrap())).collect::<Vec<_>>());
    assert_eq!(scorer.states(texts(&[]), &Call::local()).await.unwrap(), vec![]);
    let empty = scorer.states(texts(&["", "ab abc"]), &Call::local()).await.unwrap();
    assert_eq!((empty[0].values.len(), empty[1].values.clone()), (0, vec![2.0, 3.0]));
    assert_eq!((scorer.scored(), scored.load(Ordering::SeqCst)), (0, 0), "nothing is scored");
}

#[tokio::test]
async fn states_that_are_no_numbers_fail_their_own_list_only() {
    let (scorer, _) = start(Duration::ZERO, false);
    let refused = scorer.states(texts(&["ab", "thirteenbytes"]), &Call::local()).await.unwrap_err();
    assert!(refused.to_string().contains("text 1 are not finite"), "{refused}");
    assert!(scorer.states(texts(&["ab"]), &Call::local()).await.is_ok());
}

#[tokio::test]
async fn a_list_of_states_takes_turns_and_stops_with_its_call() {
    let (scorer, _) = start(Duration::from_millis(1), false);
    let many_texts: Arc<[String]> = vec!["ab".to_owned(); 4_000].into();
    let hurried = Call::local_with(Some(Instant::now() + Duration::from_millis(50)));
    let late = scorer.states(Arc::clone(&many_texts), &hurried).await;
    assert_eq!(late, Err(ScheduleError::Stopped(Stopped::DeadlineExceeded).into()));
    let (other, started) = (scorer.clone(), Instant::now());
    let long = tokio::spawn(async move { other.states(many_texts, &Call::local()).await.map(|_| started.elapsed()) });
    tokio::time::sleep(Duration::from_millis(20)).await;
    scorer.score(many(1), &Call::local(), None).await.unwrap();
    let short = started.elapsed();
    assert!(short * 2 < long.await.unwrap().unwrap(), "{short:?}");
}

#[tokio::test]
async fn a_model_without_states_says_so() {
    struct Plain;
    impl Reranker for Plain {
        fn info(&self) -> RerankerInfo {
            RerankerInfo { name: "plain".into(), ..RerankerInfo::default() }
        }
        fn query(&self, _: &str, _: bool) -> Result<Encoded, crate::model::reranker::TextError> {
            Ok(Encoded::default())
        }
        fn passage(&self, _: &Encoded, _: &str, _: Shortening) -> Result<Encoded, crate::model::reranker::TextError> {
            Ok(Encoded::default())
        }
        fn query_cost(&self, _: &Encoded) -> usize {
            0
        }
        fn score(&mut self, _: &Encoded, passages: &[&Encoded]) -> Result<Vec<f64>, ModelError> {
            Ok(vec![0.0; passages.len()])
        }
    }
    let loader: Loader = Box::new(|serve| {
        serve(&mut Plain);
        Ok(())
    });
    let scorer = PassageScorer::start("reranker", ConfiguredModel::default(), None, loader).unwrap();
    let refused = scorer.states(texts(&["ab"]), &Call::local()).await.unwrap_err();
    assert!(matches!(&refused, ScoreError::Schedule(ScheduleError::Model(ModelError::Unusable { .. }))), "{refused}");
    assert!(refused.to_string().starts_with("plain: it gives no states"), "{refused}");
}

/// A list that cannot end in time is abandoned after its first turn, because later lists could use that time.
#[tokio::test]
async fn a_list_that_cannot_end_in_time_is_given_up() {
    let (scorer, scored) = start(Duration::from_millis(1), false);
    let within = |seconds| Call::local_with(Some(Instant::now() + Duration::from_secs(seconds)));
    // The speed is unknown, and the first turn of a model does not count as a measurement.
    for _ in 0..2 {
        scorer.score(many(TURN), &within(30), None).await.unwrap();
    }
    assert_eq!(scored.load(Ordering::Relaxed), 2 * TURN);
    // More than six seconds.
    let late = scorer.score(many(6_400), &within(2), None).await.unwrap_err();
    assert_eq!(late, ScoreError::Schedule(ScheduleError::Stopped(Stopped::DeadlineExceeded)));
    assert_eq!(scored.load(Ordering::Relaxed), 3 * TURN);
    scorer.score(many(TURN), &within(2), None).await.unwrap();
    // Without a deadline any list is scored.
    scorer.score(many(2 * TURN), &Call::local(), None).await.unwrap();
    assert_eq!(scored.load(Ordering::Relaxed), 6 * TURN);
}

/// A call of a server with a deadline.
fn within(admission: &Admission, milliseconds: u64, priority: Priority) -> Call {
    let deadline = Some(Instant::now() + Duration::from_millis(milliseconds));
    admission.admit(Terms { priority, deadline, ..Terms::default() }, Place::Beside).unwrap()
}

#[tokio::test]
async fn a_list_that_cannot_end_behind_the_others_is_refused_at_once() {
    let (scorer, scored) = start(Duration::from_millis(1), false);
    let admission = Admission::new(8);
    let of = |milliseconds, priority| within(&admission, milliseconds, priority);
    for _ in 0..2 {
        scorer.score(many(TURN), &of(30_000, Priority::NORMAL), None).await.unwrap();
    }
    // More than a second of work that goes first.
    let (other, urgent) = (scorer.clone(), of(60_000, Priority::HIGH));
    let long = tokio::spawn(async move { other.score(many(960), &urgent, None).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let began = Instant::now();
    let refused = scorer.score(many(300), &of(1_000, Priority::NORMAL), None).await.unwrap_err();
    let ScoreError::Schedule(ScheduleError::Overloaded { retry_after }) = refused else { panic!("{refused}") };
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    assert!(retry_after < Duration::from_secs(3), "{retry_after:?}");
    // The list is admitted if it goes before the other.
    scorer.score(many(300), &of(3_000, Priority::HIGH), None).await.unwrap();
    assert_eq!(long.await.unwrap().unwrap().scores.len(), 960);
    assert_eq!(scored.load(Ordering::Relaxed), 2 * TURN + 960 + 300);
    assert_eq!(scorer.backlog.ledger.total(), 0, "nothing is left behind");
}

/// Urgent lists took all turns.
#[tokio::test]
async fn an_urgent_list_leaves_every_eighth_turn_to_the_others() {
    let (scorer, _) = start(Duration::from_millis(1), false);
    let admission = Admission::new(8);
    let (other, urgent) = (scorer.clone(), within(&admission, 60_000, Priority::HIGH));
    let long = tokio::spawn(async move { other.score(many(60 * TURN), &urgent, None).await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    let batch = scorer.score(many(TURN), &Call::local(), None).await.unwrap();
    assert!(batch.queued < Duration::from_millis(600) && !long.is_finished(), "{:?}", batch.queued);
    assert_eq!(long.await.unwrap().unwrap().steps, 60);
}

/// Its entry delayed others until its turn came.
#[tokio::test]
async fn a_list_that_nobody_waits_for_is_in_nobodys_way() {
    let (scorer, _) = start(Duration::from_millis(1), false);
    let lists: Vec<_> = (0..3)
        .map(|_| {
            let other = scorer.clone();
            tokio::spawn(async move { other.score(many(500), &Call::local(), None).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(scorer.backlog.ledger.total() > 2_000);
    for list in &lists {
        list.abort();
    }
    for list in lists {
        let _ = list.await;
    }
    assert_eq!(scorer.backlog.ledger.total(), 0);
    scorer.score(many(1), &Call::local(), None).await.unwrap();
}

/// A deadline of five seconds, of which its caller waits one: the list was scored until the caller left. It must
/// not begin.
#[tokio::test]
async fn what_cannot_end_while_its_caller_waits_is_given_up() {
    let (scorer, scored) = start(Duration::from_millis(1), false);
    for _ in 0..2 {
        scorer.score(many(TURN), &Call::local(), None).await.unwrap();
    }
    let call = Call::local_with(Some(Instant::now() + Duration::from_secs(5)));
    let short = List { until: Some(Instant::now() + Duration::from_secs(1)), ..many(2_000) };
    let late = scorer.score(short, &call, None).await.unwrap_err();
    assert_eq!(late, ScoreError::Schedule(ScheduleError::Stopped(Stopped::DeadlineExceeded)));
    assert_eq!(scored.load(Ordering::Relaxed), 2 * TURN);
}

/// A model with a measured speed of 3,000 tokens per second, and a list for which a part suffices, the last
/// passages first. It reads the shorter passages of this list at two thirds of that speed.
async fn in_part() -> (PassageScorer, Arc<AtomicUsize>, List) {
    let (scorer, scored) = start(Duration::from_millis(1), false);
    for _ in 0..2 {
        scorer.score(many(TURN), &Call::local(), None).await.unwrap();
    }
    let passages = (0..2_000).map(|index| "one ".repeat(1 + index % 3)).collect();
    let until = Some(Instant::now() + Duration::from_secs(1));
    (scorer, scored, List { passages, until, preferred: (0..2_000).rev().collect(), ..list("two", &[]) })
}

/// The first passage with a score; all later ones have one.
fn first_scored(scores: &[f64]) -> usize {
    let first = scores.iter().position(|score| score.is_finite()).unwrap();
    assert!(scores[first..].iter().all(|score| score.is_finite()), "a preferred one was left out");
    first
}

/// Three quarters of a second would suffice for 1,125 passages at the measured speed: there are fewer.
#[tokio::test]
async fn of_a_list_whose_caller_takes_a_part_the_preferred_passages_are_scored() {
    let (scorer, scored, part) = in_part().await;
    let answer = scorer.score(part.clone(), &Call::local(), None).await.unwrap();
    let first = first_scored(&answer.scores);
    assert!((1_000..2_000 - TURN).contains(&first), "{first}");
    let tokens: usize = (first..2_000).map(|index| 1 + index % 3).sum();
    assert_eq!((answer.tokens, scored.load(Ordering::Relaxed)), (tokens, 2 * TURN + 2_000 - first));
    assert_eq!(scorer.backlog.ledger.total(), 0);
    // All are scored if the time suffices for all, none if it suffices for fewer than two.
    let whole = List { preferred: vec![3, 2, 1, 0], ..many(4) };
    let soon = |milliseconds| Some(Instant::now() + Duration::from_millis(milliseconds));
    let answer = scorer.score(List { until: soon(60_000), ..whole.clone() }, &Call::local(), None).await.unwrap();
    assert!(answer.scores.iter().all(|score| score.is_finite()));
    let late = List { until: Some(Instant::now()), ..whole };
    let late = scorer.score(late, &Call::local(), None).await.unwrap_err();
    assert_eq!(late, ScoreError::Schedule(ScheduleError::Stopped(Stopped::DeadlineExceeded)));
}

/// The list lost its scores when the turns of more urgent lists took its time. With enough time it gets all of its
/// turns.
#[tokio::test]
async fn what_is_done_of_a_part_is_its_answer_when_the_turns_of_another_list_take_its_time() {
    for (seconds, whole) in [(3, false), (300, true)] {
        let (scorer, scored, part) = in_part().await;
        let part = List { until: Some(Instant::now() + Duration::from_secs(seconds)), ..part };
        let other = scorer.clone();
        let part = tokio::spawn(async move { other.score(part, &Call::local(), None).await });
        while scored.load(Ordering::Relaxed) < 4 * TURN {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // At the measured speed it takes half of the three seconds.
        let urgent = within(&Admission::new(1), 60_000, Priority::HIGH);
        let between = scorer.score(many(1_500), &urgent, None).await.unwrap();
        assert!(between.scores.iter().all(|score| score.is_finite()));
        let first = first_scored(&part.await.unwrap().unwrap().scores);
        assert_eq!(first == 0, whole, "{seconds} s: {first}");
        assert!(first <= 2_000 - 2 * TURN, "{first}");
    }
}

/// The model cuts passages, so their bytes overstate their cost: an idle server left the model out because of them.
#[tokio::test]
async fn what_the_model_cuts_does_not_count() {
    let (scorer, _) = start(Duration::ZERO, false);
    scorer.score(many(1), &Call::local(), None).await.unwrap();
    let long = List { passages: vec!["a ".repeat(100_000); 4].into(), ..many(0) };
    let size = long.size(scorer.info().unwrap().most_tokens);
    assert_eq!(size.bytes, 4 * (400 + 3 + 16), "a hundred tokens each, the query, and a frame");
    assert_eq!(List { tokens: 70, ..long }.size(100).most, 70);
}
