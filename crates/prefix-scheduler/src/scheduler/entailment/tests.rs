//! Turns, cached verdicts, faults.

use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use super::*;
use crate::call::{Admission, Place, Stopped, Terms};
use crate::scripted::ScriptedEntailment;

fn pair(premise: &str, hypothesis: &str) -> TextPair {
    TextPair::new(premise, hypothesis)
}

fn start(options: EntailmentOptions, delay: Duration, mut faults: Vec<&'static str>) -> (Judge, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&calls);
    let loader: Loader = Box::new(move |serve| {
        if faults.first() == Some(&"load") {
            faults.remove(0);
            return Err(ModelError::Unusable { path: "x.onnx".into(), problem: "is damaged".into() });
        }
        let panics = !faults.is_empty();
        faults.clear();
        serve(&mut ScriptedEntailment { delay, judged: Arc::clone(&seen), panics, three_way: true });
        Ok(())
    });
    (Judge::start(options, ConfiguredModel::default(), loader).unwrap(), calls)
}

const OPTIONS: EntailmentOptions = EntailmentOptions { cache_entries: 100 };

#[tokio::test]
async fn equal_pairs_are_judged_once_and_verdicts_are_kept() {
    let (judge, calls) = start(OPTIONS, Duration::ZERO, vec![]);
    let list = vec![pair("a b", "a"), pair("a", "c"), pair("a b", "a")];
    let first = judge.judge(list.clone(), &Call::local()).await.unwrap();
    assert_eq!((first.judged, calls.load(Ordering::SeqCst)), (2, 2));
    assert_eq!(first.verdicts[0], first.verdicts[2]);
    assert!(first.verdicts[0].entailment > 0.5 && first.verdicts[1].entailment < 0.5);
    let second = judge.judge(list, &Call::local()).await.unwrap();
    assert_eq!((second.judged, second.verdicts), (0, first.verdicts));
    assert!(judge.judge(vec![], &Call::local()).await.unwrap().verdicts.is_empty());
}

/// The scripted model sleeps for every pair, so these are lower bounds.
#[tokio::test]
async fn what_a_list_took_is_told() {
    let delay = Duration::from_millis(2);
    let (judge, _) = start(OPTIONS, delay, vec![]);
    let list = |from: usize| (from..from + 3).map(|i| pair(&i.to_string(), "x")).collect::<Vec<_>>();
    let call = Call::local();
    let (first, second) = tokio::join!(judge.judge(list(0), &call), judge.judge(list(10), &call));
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(first.running >= 3 * delay && second.running >= 3 * delay, "{first:?} {second:?}");
    assert!(second.queued >= 3 * delay, "the second list waited for the first: {second:?}");
}

/// A caller of another model shares the cores with the turn that it finds.
#[tokio::test]
async fn idle_work_stops_within_a_few_pairs() {
    let (judge, calls) = start(OPTIONS, Duration::from_millis(5), vec![]);
    let admission = Admission::new(1);
    let idle = admission.while_idle("Idle").unwrap();
    let pairs = (0..TURN).map(|i| pair(&i.to_string(), "x")).collect();
    let judged = judge.judge(pairs, &idle);
    let request = async {
        while calls.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(admission.admit(Terms::default(), Place::Generator).unwrap());
    };
    let (judged, ()) = tokio::join!(judged, request);
    assert_eq!(judged, Err(ScheduleError::Stopped(Stopped::Cancelled)));
    judge.judge(vec![], &Call::local()).await.unwrap();
    assert!(calls.load(Ordering::SeqCst) < TURN, "{calls:?}");
}

#[tokio::test]
async fn a_short_list_does_not_wait_for_a_long_one() {
    let (judge, _) = start(OPTIONS, Duration::from_millis(1), vec![]);
    let long = (0..400).map(|i| pair(&i.to_string(), "x")).collect();
    let (other, started) = (judge.clone(), Instant::now());
    let long = tokio::spawn(async move { other.judge(long, &Call::local()).await.map(|_| started.elapsed()) });
    tokio::time::sleep(Duration::from_millis(20)).await;
    judge.judge(vec![pair("a", "b")], &Call::local()).await.unwrap();
    let short = started.elapsed();
    assert!(short * 2 < long.await.unwrap().unwrap(), "{short:?}");
}

/// The list that triggered the load returned to the queue and triggered it again and again.
#[tokio::test]
async fn a_load_that_panics_ends_with_an_answer() {
    let loads = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&loads);
    let loader: Loader = Box::new(move |_| {
        seen.fetch_add(1, Ordering::SeqCst);
        panic!("injected");
    });
    let judge = Judge::start(OPTIONS, ConfiguredModel::default(), loader).unwrap();
    let call = Call::local();
    let asked = judge.judge(vec![pair("a b", "a")], &call);
    let answer = tokio::time::timeout(Duration::from_secs(20), asked).await.unwrap();
    assert!(answer.is_err(), "{answer:?}");
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(loads.load(Ordering::SeqCst), 1, "nobody asks any more");
}

/// Calls that left while the model was loading kept their permits until it was loaded: a minute of them filled the
/// server.
#[tokio::test]
async fn who_leaves_while_the_model_loads_holds_no_permit() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let loader: Loader = Box::new(move |serve| {
        held.recv().unwrap();
        let judged = Arc::new(AtomicUsize::new(0));
        serve(&mut ScriptedEntailment { delay: Duration::ZERO, judged, panics: false, three_way: true });
        Ok(())
    });
    let judge = Judge::start(OPTIONS, ConfiguredModel::default(), loader).unwrap();
    let admission = Admission::new(8);
    for _ in 0..3 {
        let call = admission.admit(Terms::default(), Place::Beside).unwrap();
        let asked = judge.judge(vec![pair("a b", "a")], &call);
        assert!(tokio::time::timeout(Duration::from_millis(30), asked).await.is_err(), "it loads");
    }
    assert_eq!(admission.in_flight(), 0);
    release.send(()).unwrap();
    assert_eq!(judge.judge(vec![pair("a b", "a")], &Call::local()).await.unwrap().judged, 1);
}

#[tokio::test]
async fn deadlines_and_departures_stop_the_work() {
    let (judge, calls) = start(OPTIONS, Duration::from_millis(1), vec![]);
    let long: Vec<TextPair> = (0..4_000).map(|i| pair(&i.to_string(), "x")).collect();
    let soon = Some(Instant::now() + Duration::from_millis(50));
    assert_eq!(judge.judge(long.clone(), &Call::local_with(soon)).await.unwrap_err(), Stopped::DeadlineExceeded.into());
    let gone = Call::local();
    let left = tokio::time::timeout(Duration::from_millis(30), judge.judge(long, &gone)).await;
    assert!(left.is_err());
    judge.judge(vec![pair("a", "b")], &Call::local()).await.unwrap();
    assert!(calls.load(Ordering::SeqCst) < 1_000);
}

#[tokio::test]
async fn a_model_that_cannot_be_loaded_is_tried_again_and_a_panic_is_survived() {
    let (judge, _) = start(OPTIONS, Duration::ZERO, vec!["load", "panic"]);
    let error = judge.judge(vec![pair("a", "b")], &Call::local()).await.unwrap_err();
    assert!(error.to_string().contains("x.onnx: is damaged"));
    assert_eq!(judge.judge(vec![pair("a", "b")], &Call::local()).await.unwrap_err(), ScheduleError::Unavailable);
    judge.judge(vec![pair("a", "b")], &Call::local()).await.unwrap();
}

/// A panic answered every list in the queue with UNAVAILABLE.
#[tokio::test]
async fn a_panic_takes_down_its_own_list_only() {
    let (judge, _) = start(OPTIONS, Duration::from_millis(1), vec!["panic"]);
    let call = Call::local();
    let (first, second, third) = tokio::join!(
        judge.judge(vec![pair("a", "b")], &call),
        judge.judge(vec![pair("a", "c")], &call),
        judge.judge(vec![pair("a", "d")], &call),
    );
    assert_eq!(first.unwrap_err(), ScheduleError::Unavailable);
    assert_eq!((second.unwrap().judged, third.unwrap().judged), (1, 1));
}

/// The (q): entries were whole texts, of up to 2 MiB each.
#[tokio::test]
async fn kept_verdicts_do_not_hold_the_texts() {
    let (judge, calls) = start(OPTIONS, Duration::ZERO, vec![]);
    let long = "x ".repeat(1 << 20);
    judge.judge(vec![pair(&long, "a")], &Call::local()).await.unwrap();
    assert_eq!(judge.judge(vec![pair(&long, "a")], &Call::local()).await.unwrap().judged, 0);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    assert_ne!(key("", &pair("ab", "c")), key("", &pair("a", "bc")));
}

/// A model that reports another file.
struct Another(ScriptedEntailment);

impl Entailment for Another {
    fn info(&self) -> EntailmentInfo {
        EntailmentInfo { sha256: "2".repeat(64), ..self.0.info() }
    }

    fn judge(&mut self, pairs: &[TextPair]) -> Result<Vec<EntailmentProbabilities>, ModelError> {
        self.0.judge(pairs)
    }
}

/// Verdicts of a replaced file came back under the name of the file that was loaded after a panic.
#[tokio::test]
async fn verdicts_of_another_file_are_not_kept() {
    let judged = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&judged);
    let mut loads = 0;
    let loader: Loader = Box::new(move |serve| {
        loads += 1;
        let model =
            |panics| ScriptedEntailment { delay: Duration::ZERO, judged: Arc::clone(&seen), panics, three_way: true };
        match loads {
            1 => serve(&mut Ends(model(false))),
            _ => serve(&mut Another(model(false))),
        }
        Ok(())
    });
    let judge = Judge::start(OPTIONS, ConfiguredModel::default(), loader).unwrap();
    let ask = async |premise: &str| judge.judge(vec![pair(premise, "b")], &Call::local()).await;
    assert_eq!(ask("a").await.unwrap().judged, 1);
    assert_eq!(ask("a").await.unwrap().judged, 0);
    assert_eq!(ask("panics").await.unwrap_err(), ScheduleError::Unavailable);
    let again = ask("a").await.unwrap();
    assert_eq!((again.judged, again.model.sha256), (1, "2".repeat(64)));
    assert_eq!(judged.load(Ordering::SeqCst), 2);
}

/// A model that panics at a premise.
struct Ends(ScriptedEntailment);

impl Entailment for Ends {
    fn info(&self) -> EntailmentInfo {
        self.0.info()
    }

    fn judge(&mut self, pairs: &[TextPair]) -> Result<Vec<EntailmentProbabilities>, ModelError> {
        self.0.panics = pairs.iter().any(|pair| &*pair.premise == "panics");
        self.0.judge(pairs)
    }
}
