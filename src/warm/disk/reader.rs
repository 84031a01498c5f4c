//! Asks the folder on threads of its own. A network volume that stops answering holds whoever asks it for ever: a request waits
//! [`WAIT`] at most, and the folder is then passed over for [`SILENCE`].

use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a question is waited for. A state has megabytes, which slow disks read in a fraction of that.
pub(super) const WAIT: Duration = Duration::from_secs(2);

/// How long nothing is asked after a question that was not answered.
const SILENCE: Duration = Duration::from_secs(30);

/// Threads that ask. One that hangs is lost until the volume answers.
const THREADS: usize = 4;

type Question = Box<dyn FnOnce() + Send>;

/// The threads that ask the folder. They end when it is dropped, but for those that hang.
pub(super) struct Reader {
    questions: Sender<Question>,
    silent_until: Mutex<Option<Instant>>,
}

impl Reader {
    pub fn start() -> io::Result<Self> {
        let (questions, asked) = channel();
        let asked = Arc::new(Mutex::new(asked));
        for _ in 0..THREADS {
            let asked = Arc::clone(&asked);
            std::thread::Builder::new().name("warm-read".into()).spawn(move || serve(&asked))?;
        }
        Ok(Self { questions, silent_until: Mutex::new(None) })
    }

    /// What `question` finds in the folder; `None` where it does not answer, or did not lately.
    pub fn ask<T: Send + 'static>(&self, folder: &Path, question: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if self.silence(|until| until.is_some_and(|until| Instant::now() < until)) {
            return None;
        }
        let (reply, answer) = sync_channel(1);
        let question = move || {
            // The one who asked may have left.
            let _ = reply.send(question());
        };
        self.questions.send(Box::new(question)).ok()?;
        let answer = answer.recv_timeout(WAIT).ok();
        if answer.is_none() {
            let again = SILENCE.as_secs();
            tracing::error!(folder = %folder.display(), again, "the folder of states does not answer: it is passed over");
            self.silence(|until| *until = Some(Instant::now() + SILENCE));
        }
        answer
    }

    fn silence<T>(&self, with: impl FnOnce(&mut Option<Instant>) -> T) -> T {
        with(&mut self.silent_until.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn serve(asked: &Mutex<Receiver<Question>>) {
    loop {
        let question = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(question) = question else { return };
        question();
    }
}
