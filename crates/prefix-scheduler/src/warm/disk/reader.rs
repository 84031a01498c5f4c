//! Accesses the folder on separate threads, because a network volume that stops answering blocks a thread for ever.
//! A request waits while other requests get answers, and [`WAIT`] more. The folder is then not used for
//! [`SILENCE`].

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

/// Without any answer for this long, the folder counts as unresponsive. Slow disks read the megabytes of a state
/// faster.
pub(super) const WAIT: Duration = Duration::from_secs(5);

/// How long the folder is not used after an unanswered question.
const SILENCE: Duration = Duration::from_secs(30);

/// Threads that access the folder. A thread that hangs is lost until the volume answers.
const THREADS: usize = 4;

type Question = Box<dyn FnOnce() + Send>;

/// The threads that access the folder. They end when it is dropped, except hanging ones.
pub(super) struct Reader {
    questions: Sender<Question>,
    /// When a question was last answered.
    answered: Arc<Mutex<Instant>>,
    silent_until: Mutex<Option<Instant>>,
}

impl Reader {
    pub fn start() -> io::Result<Self> {
        let (questions, asked) = channel();
        let asked = Arc::new(Mutex::new(asked));
        let answered = Arc::new(Mutex::new(Instant::now()));
        for _ in 0..THREADS {
            let (asked, answered) = (Arc::clone(&asked), Arc::clone(&answered));
            std::thread::Builder::new().name("warm-read".into()).spawn(move || serve(&asked, &answered))?;
        }
        Ok(Self { questions, answered, silent_until: Mutex::new(None) })
    }

    /// Result of `question` on the folder; `None` if the folder does not answer now, or did not recently.
    pub fn ask<T: Send + 'static>(&self, folder: &Path, question: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if self.silence(|until| until.is_some_and(|until| Instant::now() < until)) {
            return None;
        }
        let (reply, answer) = sync_channel(1);
        let left = Arc::new(AtomicBool::new(false));
        let leaving = Arc::clone(&left);
        let question = move || {
            // The caller may have left.
            if !left.load(Ordering::Relaxed) {
                let _ = reply.send(question());
            }
        };
        let asked = Instant::now();
        self.questions.send(Box::new(question)).ok()?;
        loop {
            match answer.recv_timeout(WAIT) {
                // The folder is slow but answers others.
                Err(RecvTimeoutError::Timeout)
                    if asked.elapsed() < SILENCE && lock(&self.answered).elapsed() < WAIT => {}
                Ok(found) => return Some(found),
                Err(_) => break,
            }
        }
        leaving.store(true, Ordering::Relaxed);
        let again = SILENCE.as_secs();
        tracing::error!(folder = %folder.display(), again, "the folder of states does not answer: it is not used for a while");
        self.silence(|until| *until = Some(Instant::now() + SILENCE));
        None
    }

    fn silence<T>(&self, with: impl FnOnce(&mut Option<Instant>) -> T) -> T {
        with(&mut lock(&self.silent_until))
    }
}

fn lock<T>(held: &Mutex<T>) -> MutexGuard<'_, T> {
    held.lock()
}

fn serve(asked: &Mutex<Receiver<Question>>, answered: &Mutex<Instant>) {
    loop {
        let question = lock(asked).recv();
        let Ok(question) = question else { return };
        question();
        *lock(answered) = Instant::now();
    }
}
