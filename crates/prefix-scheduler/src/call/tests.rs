//! Slots, deadlines and cancellation of calls.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;

async fn forever(call: &Call) -> Result<(), Stopped> {
    call.run(std::future::pending::<Result<(), Stopped>>()).await
}

#[tokio::test]
async fn a_slot_is_held_until_the_last_clone_is_gone() {
    let admission = Admission::new(1);
    let call = admission.admit(Terms::default(), Place::Generator).unwrap();
    assert_eq!(admission.admit(Terms::default(), Place::Generator).unwrap_err(), Full);
    let clone = call.clone();
    drop(call);
    assert_eq!(admission.in_flight(), 1);
    drop(clone);
    assert_eq!(admission.in_flight(), 0);
    assert!(admission.admit(Terms::default(), Place::Generator).is_ok());
}

#[tokio::test]
async fn a_deadline_ends_the_work() {
    let soon = Instant::now() + Duration::from_millis(20);
    let call = Call::local_with(Some(soon));
    assert_eq!(forever(&call).await, Err(Stopped::DeadlineExceeded));
    assert_eq!(
        call.compute(|_| Ok::<_, Stopped>(())).await,
        Err(Stopped::Cancelled),
        "the end of `run` cancels the call"
    );
    let ledger = Ledger::default();
    let held = Call::local_with(Some(soon));
    held.expect(&ledger, 10);
    assert_eq!(forever(&held.clone()).await, Err(Stopped::DeadlineExceeded));
    assert_eq!(ledger.total(), 0, "a clone that lives on delays nobody");
    let late = Call::local_with(Some(soon));
    assert_eq!(late.compute(|_| Ok::<_, Stopped>(())).await, Err(Stopped::DeadlineExceeded));
}

#[tokio::test]
async fn a_caller_that_leaves_stops_blocking_work_and_gives_its_slot_back() {
    let admission = Admission::new(1);
    let call = admission.admit(Terms::default(), Place::Generator).unwrap();
    let ended = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ended);
    let work = async move {
        let spin = move |call: &Call| {
            while !call.is_stopped() {
                std::thread::sleep(Duration::from_millis(1));
            }
            seen.store(true, Ordering::SeqCst);
            Ok::<_, Stopped>(())
        };
        call.run(call.compute(spin)).await
    };
    assert!(tokio::time::timeout(Duration::from_millis(30), work).await.is_err());
    for _ in 0..1_000 {
        if admission.in_flight() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(ended.load(Ordering::SeqCst));
    assert_eq!(admission.in_flight(), 0);
}

#[tokio::test]
async fn the_end_of_the_server_reaches_every_call() {
    let admission = Admission::new(2);
    let call = admission.admit(Terms::default(), Place::Generator).unwrap();
    let child = call.child();
    let waiting = tokio::spawn(async move { forever(&child).await });
    tokio::time::sleep(Duration::from_millis(5)).await;
    admission.cancel_all();
    assert_eq!(waiting.await.unwrap(), Err(Stopped::Cancelled));
    assert_eq!(call.check(), Err(Stopped::Cancelled));
}

#[tokio::test]
async fn a_child_is_cancelled_alone() {
    let call = Call::local();
    let child = call.child();
    child.cancel();
    assert!(child.is_stopped() && !call.is_stopped());
    assert_eq!(child.id(), call.id());
    assert_ne!(call.id(), Call::local().id());
}

#[tokio::test]
async fn a_panic_is_an_error_of_its_call_only() {
    let call = Call::local();
    let failed = call.compute(|_| -> Result<(), Stopped> { std::panic::panic_any("broken") }).await;
    assert_eq!(failed, Err(Stopped::Panicked("broken".into())));
    assert_eq!(call.compute(|_| Ok::<_, Stopped>(7)).await, Ok(7));
}

#[tokio::test]
async fn a_stream_waits_for_a_slot_and_for_no_longer_than_its_deadline() {
    let admission = Admission::new(1);
    let held = admission.admit(Terms::default(), Place::Generator).unwrap();
    let soon = Terms { deadline: Some(Instant::now() + Duration::from_millis(20)), ..Terms::default() };
    assert_eq!(admission.admit_when_free(soon, Place::Generator).await.unwrap_err(), Stopped::DeadlineExceeded);
    let other = admission.clone();
    let waiting = tokio::spawn(async move { other.admit_when_free(Terms::default(), Place::Generator).await.is_ok() });
    tokio::time::sleep(Duration::from_millis(5)).await;
    drop(held);
    assert!(waiting.await.unwrap());
}

/// The wait for the slot was reported as a separate call.
#[tokio::test]
async fn a_question_of_a_stream_ends_once() {
    #[derive(Debug, Default)]
    struct Ended(AtomicU64);
    impl Observer for Ended {
        fn ended(&self, _: &str, _: &Tally) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let ended = Arc::new(Ended::default());
    let admission = Admission::new(1).observed_by(Arc::clone(&ended) as _);
    let call = admission.admit_when_free(Terms::default(), Place::Generator).await.unwrap();
    assert_eq!(ended.0.load(Ordering::SeqCst), 0);
    drop(call);
    assert_eq!(ended.0.load(Ordering::SeqCst), 1);
}

/// A fit that the deadline interrupted answered CANCELLED, as if its caller had left.
#[tokio::test]
async fn interrupted_work_ends_with_the_reason_of_the_call() {
    let call = Call::local_with(Some(Instant::now() + Duration::from_millis(10)));
    let work = |call: &Call| {
        while !call.is_stopped() {
            std::thread::sleep(Duration::from_millis(1));
        }
        Err::<(), _>(Stopped::Cancelled)
    };
    assert_eq!(call.compute(work).await, Err(Stopped::DeadlineExceeded));
}

/// A waiting question takes a slot as soon as it is released: without a bound, other calls would never find one.
#[tokio::test]
async fn questions_that_wait_leave_slots_to_calls_that_do_not() {
    let admission = Admission::new(32);
    let mut asked: Vec<_> = (0..40)
        .map(|_| {
            let admission = admission.clone();
            tokio::spawn(async move { admission.admit_when_free(Terms::default(), Place::Generator).await.unwrap() })
        })
        .collect();
    let waiting = asked.split_off(24);
    let mut held = Vec::new();
    for question in asked {
        held.push(question.await.unwrap());
    }
    let unary = || admission.admit(Terms::default(), Place::Generator);
    let mut calls: Vec<Call> = (0..8).map(|_| unary().unwrap()).collect();
    assert_eq!(unary().unwrap_err(), Full);
    // Its slot is still free for the next call, although questions wait.
    calls.pop();
    tokio::task::yield_now().await;
    calls.push(unary().unwrap());
    assert!(waiting.iter().all(|question| !question.is_finished()));
    // A question that ends frees one slot.
    held.pop();
    while !waiting[0].is_finished() {
        tokio::task::yield_now().await;
    }
    assert!(waiting[1..].iter().all(|question| !question.is_finished()));
    assert_eq!(admission.in_flight(), 32);
}

#[test]
fn a_full_queue_of_the_generator_leaves_room_beside_it() {
    let admission = Admission::new(1);
    let running = admission.admit(Terms::default(), Place::Generator).unwrap();
    assert_eq!(admission.admit(Terms::default(), Place::Generator).unwrap_err(), Full);
    // Its message needs no generator, or needs one.
    let unread = admission.admit_unread(Terms::default()).unwrap();
    assert_eq!(unread.move_to(Place::Beside), Ok(()));
    assert_eq!(unread.move_to(Place::Generator), Err(Full));
    assert_eq!(admission.admit(Terms::default(), Place::Beside).unwrap_err(), Full);
    assert_eq!(admission.admit_unread(Terms::default()).unwrap_err(), Full);
    drop(running);
    assert_eq!(unread.move_to(Place::Generator), Ok(()), "the slot of the generator is free by now");
    assert_eq!(admission.in_flight(), 1);
    // A call that took a slot of the generator but does not need it returns it.
    drop(unread);
    let aside = admission.admit_unread(Terms::default()).unwrap();
    aside.move_to(Place::Beside).unwrap();
    assert!(admission.admit(Terms::default(), Place::Generator).is_ok());
    drop(aside);
    assert_eq!(admission.in_flight(), 0);
    assert_eq!(Call::local().move_to(Place::Generator), Ok(()));
}

/// Rankings by other models held the slots of the generator, which then refused calls while it was idle.
#[test]
fn full_slots_of_other_models_take_none_of_the_generator() {
    let admission = Admission::new(1);
    let judging = admission.admit(Terms::default(), Place::Beside).unwrap();
    let unread = admission.admit_unread(Terms::default()).unwrap();
    assert_eq!(unread.move_to(Place::Beside), Err(Full));
    drop(unread);
    assert!(admission.admit(Terms::default(), Place::Generator).is_ok());
    drop(judging);
    assert_eq!(admission.in_flight(), 0);
}

/// A request that arrives must not wait for it, and it must not begin between two requests that overlap.
#[tokio::test]
async fn idle_work_ends_when_a_slot_is_taken() {
    let admission = Admission::new(2);
    for place in [Place::Generator, Place::Beside] {
        let idle = admission.while_idle("Idle").unwrap();
        assert_eq!((idle.check(), idle.priority(), admission.in_flight()), (Ok(()), Priority::IDLE, 0));
        let first = admission.admit(Terms::default(), place).unwrap();
        assert_eq!(idle.check(), Err(Stopped::Cancelled));
        assert!(admission.while_idle("Idle").is_none());
        drop(first);
    }
    let idle = admission.while_idle("Idle").unwrap();
    let question = admission.admit_when_free(Terms::default(), Place::Generator).await.unwrap();
    assert_eq!(idle.check(), Err(Stopped::Cancelled), "a question of a stream also ends it");
    drop(question);
    let [first, second] = [(); 2].map(|()| admission.while_idle("Idle").unwrap());
    assert_eq!((first.check(), second.check()), (Err(Stopped::Cancelled), Ok(())));
    admission.cancel_all();
    assert_eq!(second.check(), Err(Stopped::Cancelled), "the end of the server");
}
