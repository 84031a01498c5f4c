//! Permits, deadlines and cancellation of calls.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;

async fn forever(call: &Call) -> Result<(), Stopped> {
    call.run(std::future::pending::<Result<(), Stopped>>()).await
}

#[tokio::test]
async fn a_place_is_held_until_the_last_clone_is_gone() {
    let admission = Admission::new(1);
    let call = admission.admit(Terms::default()).unwrap();
    assert_eq!(admission.admit(Terms::default()).unwrap_err(), Full);
    let clone = call.clone();
    drop(call);
    assert_eq!(admission.in_flight(), 1);
    drop(clone);
    assert_eq!(admission.in_flight(), 0);
    assert!(admission.admit(Terms::default()).is_ok());
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
    let late = Call::local_with(Some(soon));
    assert_eq!(late.compute(|_| Ok::<_, Stopped>(())).await, Err(Stopped::DeadlineExceeded));
}

#[tokio::test]
async fn a_caller_that_leaves_stops_blocking_work_and_gives_its_place_back() {
    let admission = Admission::new(1);
    let call = admission.admit(Terms::default()).unwrap();
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
    let call = admission.admit(Terms::default()).unwrap();
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
async fn a_stream_waits_for_a_place_and_for_no_longer_than_its_deadline() {
    let admission = Admission::new(1);
    let held = admission.admit(Terms::default()).unwrap();
    let soon = Terms { deadline: Some(Instant::now() + Duration::from_millis(20)), ..Terms::default() };
    assert_eq!(admission.admit_when_free(soon).await.unwrap_err(), Stopped::DeadlineExceeded);
    let other = admission.clone();
    let waiting = tokio::spawn(async move { other.admit_when_free(Terms::default()).await.is_ok() });
    tokio::time::sleep(Duration::from_millis(5)).await;
    drop(held);
    assert!(waiting.await.unwrap());
}

/// A fit that was interrupted by the deadline answered CANCELLED, as if its caller had left.
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
