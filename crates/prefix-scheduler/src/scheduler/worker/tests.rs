//! Loading, failing and ending of workers.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Answers numbers; fails and panics according to its script, one entry per load.
struct Echo {
    script: Vec<&'static str>,
    loads: Arc<AtomicUsize>,
    ended: Arc<Mutex<bool>>,
}

type Reply = Sender<Result<usize, ScheduleError>>;

impl Service for Echo {
    type Job = (usize, Reply);
    type Info = usize;

    fn run(
        &mut self,
        first: Option<(usize, Reply)>,
        queue: &Receiver<(usize, Reply)>,
        ready: &mut dyn FnMut(usize),
    ) -> Result<(), ModelError> {
        let load = self.loads.fetch_add(1, Ordering::SeqCst);
        match self.script.get(load) {
            Some(&"refuse") => return Err(ModelError::Decode("no such file".into())),
            Some(&"panic") => std::panic::panic_any("broken runtime"),
            _ => ready(load),
        }
        for (number, reply) in first.into_iter().chain(queue.iter()) {
            let _ = reply.send(Ok(number));
        }
        std::thread::sleep(Duration::from_millis(20));
        *self.ended.lock().unwrap() = true;
        Ok(())
    }

    fn abandon(&mut self, _: &ScheduleError) {}
}

fn start(load: Load, script: &[&'static str]) -> (Worker<Echo>, Arc<Mutex<bool>>) {
    let ended = Arc::new(Mutex::new(false));
    let service = Echo { script: script.to_vec(), loads: Arc::default(), ended: Arc::clone(&ended) };
    (Worker::start("echo", load, service).unwrap(), ended)
}

fn ask(worker: &Worker<Echo>) -> Option<usize> {
    let (reply, answer) = channel();
    worker.send((7, reply)).unwrap();
    answer.recv_timeout(Duration::from_secs(20)).ok().and_then(Result::ok)
}

#[test]
fn a_failed_load_is_reported_with_its_reason_and_tried_again() {
    let (worker, _) = start(Load::AtStart, &["refuse", "panic"]);
    let mut status = worker.status();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let mut wait = |text: &str| {
        let failed = status.wait_for(|status| matches!(status, Status::Failed(reason) if reason.contains(text)));
        runtime
            .block_on(async { tokio::time::timeout(Duration::from_secs(20), failed).await.unwrap().unwrap().clone() })
    };
    assert!(!wait("no such file").serves());
    wait("broken runtime");
    runtime.block_on(async {
        let ready = status.wait_for(|status| *status == Status::Ready(2));
        tokio::time::timeout(Duration::from_secs(20), ready).await.unwrap().unwrap();
    });
    assert_eq!(ask(&worker), Some(7));
}

#[test]
fn a_job_during_the_pause_is_turned_away_at_once() {
    let (worker, _) = start(Load::AtStart, &["refuse", "refuse", "refuse", "refuse"]);
    let started = Instant::now();
    assert_eq!(ask(&worker), None);
    assert!(started.elapsed() < Duration::from_secs(2));
}

#[test]
fn nothing_is_loaded_before_the_first_job() {
    let (worker, _) = start(Load::OnDemand, &["refuse"]);
    assert!(worker.status().borrow().serves());
    assert_eq!(*worker.status().borrow(), Status::Idle);
    assert_eq!(ask(&worker), None, "the job that finds the model broken is dropped");
    assert_eq!(ask(&worker), Some(7));
    assert_eq!(*worker.status().borrow(), Status::Ready(1));
}

/// The (w): the thread outlived its handle, and the process could end within a step.
#[test]
fn the_thread_is_joined_with_the_last_handle() {
    let (worker, ended) = start(Load::AtStart, &[]);
    assert_eq!(ask(&worker), Some(7));
    let other = worker.clone();
    drop(worker);
    assert!(!*ended.lock().unwrap());
    drop(other);
    assert!(*ended.lock().unwrap());
}

/// A worker whose model cannot be loaded ends during its pause, however long.
#[test]
fn the_end_does_not_wait_for_the_pause() {
    let (worker, _) = start(Load::AtStart, &["refuse"; 20]);
    std::thread::sleep(Duration::from_millis(700));
    let started = Instant::now();
    drop(worker);
    assert!(started.elapsed() < Duration::from_millis(200));
}

/// Reading a large file, or a step on a large model, cannot be interrupted. The process must still end.
#[test]
fn the_end_does_not_wait_for_a_thread_that_is_busy_for_long() {
    struct Busy;
    impl Service for Busy {
        type Job = ();
        type Info = ();
        fn run(&mut self, _: Option<()>, _: &Receiver<()>, _: &mut dyn FnMut(())) -> Result<(), ModelError> {
            std::thread::sleep(LAST_STEP * 10);
            Ok(())
        }
        fn abandon(&mut self, _: &ScheduleError) {}
    }
    let worker = Worker::start("busy", Load::AtStart, Busy).unwrap();
    let started = Instant::now();
    drop(worker);
    assert!(started.elapsed() < LAST_STEP * 3);
}
