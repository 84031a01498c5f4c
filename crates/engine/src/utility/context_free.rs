//! Context-free answers of recent questions, so that many lists of one question draw them once.

use lru::LruCache;
use parking_lot::Mutex;

use crate::types::{Answer, LabelProbability, Task, UtilityRequest};

/// The generator's answers in one context.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Drawn {
    pub answers: Vec<Answer>,
    /// The task's labels with their probabilities.
    pub labels: Vec<LabelProbability>,
    /// log P of each reference, in nats; empty unless they were scored.
    pub references: Vec<f64>,
}

/// Approximate bytes of the answers.
pub(super) fn bytes(drawn: &Drawn) -> usize {
    let of =
        |answer: &Answer| size_of::<Answer>() + answer.text.len() + size_of_val(answer.log_probabilities.as_slice());
    drawn.answers.iter().map(of).sum::<usize>() + size_of_val(drawn.references.as_slice())
}

/// Everything that context-free answers depend on: the question, the task, the sampling options, and the references
/// if they are scored.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key(String, Task, String, Vec<String>);

impl Key {
    pub fn of(request: &UtilityRequest) -> Self {
        let sampling = request.task.sampling(request.sampling.clone());
        let references = request.scored_references();
        Self(request.question.clone(), request.task.clone(), format!("{sampling:?}"), references)
    }

    fn bytes(&self) -> usize {
        self.0.len() + self.2.len() + self.3.iter().map(String::len).sum::<usize>()
    }
}

/// Most questions.
const QUESTIONS: usize = 512;

/// Most bytes of questions and answers.
const MOST_BYTES: usize = 64 << 20;

#[derive(Debug)]
struct Kept {
    answers: LruCache<Key, Drawn>,
    bytes: usize,
    /// Most questions.
    questions: usize,
}

/// Context-free answers and labels of the most recent questions: at most [`QUESTIONS`], and [`MOST_BYTES`].
#[derive(Debug)]
pub(crate) struct ContextFreeCache(Mutex<Kept>);

impl Default for ContextFreeCache {
    fn default() -> Self {
        Self::of(QUESTIONS)
    }
}

impl ContextFreeCache {
    /// A cache that stores nothing.
    pub fn none() -> Self {
        Self::of(0)
    }

    fn of(questions: usize) -> Self {
        Self(Mutex::new(Kept { answers: LruCache::unbounded(), bytes: 0, questions }))
    }

    pub(super) fn get(&self, key: &Key) -> Option<Drawn> {
        self.0.lock().answers.get(key).cloned()
    }

    pub(super) fn put(&self, key: Key, drawn: Drawn) {
        let mut kept = self.0.lock();
        kept.bytes += key.bytes() + bytes(&drawn);
        // If two calls have the same question, the later answers stay.
        if let Some((key, replaced)) = kept.answers.push(key, drawn) {
            kept.bytes -= key.bytes() + bytes(&replaced);
        }
        while kept.answers.len() > kept.questions || kept.bytes > MOST_BYTES {
            let Some((key, drawn)) = kept.answers.pop_lru() else { break };
            kept.bytes -= key.bytes() + bytes(&drawn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prefix_scheduler::plan::Finish;

    fn key(number: usize) -> Key {
        Key(number.to_string(), Task::default(), String::new(), Vec::new())
    }

    fn drawn(length: usize) -> Drawn {
        let log_probabilities = vec![0.0; 4];
        let answers = vec![Answer { text: "x".repeat(length), log_probabilities, finish: Finish::Length }];
        Drawn { answers, ..Drawn::default() }
    }

    #[test]
    fn the_most_recent_questions_are_kept() {
        let cache = ContextFreeCache::default();
        (0..=QUESTIONS).for_each(|number| cache.put(key(number), drawn(10)));
        assert!(cache.get(&key(0)).is_none() && cache.get(&key(1)).is_some() && cache.get(&key(QUESTIONS)).is_some());
        cache.put(key(1), drawn(20));
        let kept = cache.0.lock();
        let sum: usize = kept.answers.iter().map(|(key, drawn)| key.bytes() + bytes(drawn)).sum();
        assert_eq!((kept.answers.len(), kept.bytes), (QUESTIONS, sum));
    }

    #[test]
    fn one_that_keeps_nothing() {
        let cache = ContextFreeCache::none();
        cache.put(key(0), drawn(10));
        assert!(cache.get(&key(0)).is_none());
        assert_eq!(cache.0.lock().bytes, 0);
    }

    /// A hundred long answers for each of 512 questions took hundreds of megabytes.
    #[test]
    fn their_bytes_are_bounded() {
        let cache = ContextFreeCache::default();
        (0..100).for_each(|number| cache.put(key(number), drawn(1 << 20)));
        assert!(cache.get(&key(0)).is_none() && cache.get(&key(99)).is_some());
        assert!(cache.0.lock().bytes <= MOST_BYTES);
        cache.put(key(100), drawn(MOST_BYTES));
        assert!(cache.get(&key(100)).is_none(), "more than all room");
    }
}
