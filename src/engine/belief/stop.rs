//! Where a sampled answer ends, and what of it counts.

use std::sync::Arc;

use crate::model::Tokenizer;
use crate::plan::{Finish, Stop, Token};
use crate::scheduler::generator::Sample;

/// Ends a sample at the model's end of turn or at a stop string.
pub(super) struct TextStop {
    tokenizer: Arc<dyn Tokenizer>,
    stops: Vec<String>,
    /// Tokens in which a stop string that has just been completed must lie: each adds a byte or more, but for the parts of a
    /// character that needs several.
    window: usize,
}

impl TextStop {
    pub fn new(tokenizer: Arc<dyn Tokenizer>, stops: Vec<String>) -> Self {
        let longest = stops.iter().map(String::len).max().unwrap_or(0);
        Self { tokenizer, stops, window: longest + 8 }
    }

    /// Text up to the first stop string, trimmed, and how many leading tokens it takes: at least one, so that an empty answer
    /// has the likelihood of the token that ended it.
    pub fn text(&self, sample: &Sample) -> (String, usize) {
        let own = match sample.tokens.split_last() {
            Some((last, before)) if self.tokenizer.ends_turn(*last) => before,
            _ => &sample.tokens[..],
        };
        let whole = self.tokenizer.detokenize(own);
        let stop = self.stops.iter().filter_map(|stop| whole.find(stop.as_str())).min();
        let kept = whole[..stop.unwrap_or(whole.len())].trim_end();
        if kept.trim().is_empty() {
            return (String::new(), 1.min(sample.tokens.len()));
        }
        // Text grows with its tokens, so the first prefix that holds all of it is found by bisection.
        let (mut short, mut enough) = (0, own.len());
        while enough - short > 1 {
            let middle = usize::midpoint(short, enough);
            let reaches = self.tokenizer.detokenize(&own[..middle]).len() >= kept.len();
            if reaches { enough = middle } else { short = middle }
        }
        (kept.trim().to_owned(), enough)
    }
}

impl Stop for TextStop {
    fn ended(&self, tokens: &[Token]) -> Option<Finish> {
        if self.tokenizer.ends_turn(*tokens.last()?) {
            return Some(Finish::EndOfTurn);
        }
        let tail = self.tokenizer.detokenize(&tokens[tokens.len().saturating_sub(self.window)..]);
        self.stops.iter().any(|stop| tail.contains(stop.as_str())).then_some(Finish::StopString)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::{ByteTokenizer, END};

    fn stop() -> TextStop {
        TextStop::new(Arc::new(ByteTokenizer::default()), vec!["\n".into(), "Question:".into()])
    }

    fn sample(text: &str, end: bool) -> Sample {
        let mut tokens: Vec<Token> = text.bytes().map(Token::from).collect();
        tokens.extend(end.then_some(END));
        let log_probabilities = vec![-1.0; tokens.len()];
        Sample { tokens, log_probabilities, finish: Finish::Length }
    }

    #[test]
    fn ends_at_stop_strings_and_turns() {
        let ended = |text: &str, end: bool| stop().ended(&sample(text, end).tokens);
        assert_eq!(ended(" Paris", false), None);
        assert_eq!(ended(" Paris\n", false), Some(Finish::StopString));
        assert_eq!(ended(" Paris Question:", false), Some(Finish::StopString));
        assert_eq!(ended(" Paris", true), Some(Finish::EndOfTurn));
        assert_eq!(stop().ended(&[]), None);
    }

    #[test]
    fn what_counts_is_trimmed_and_never_nothing() {
        assert_eq!(stop().text(&sample(" Paris\nand more", false)), ("Paris".into(), 6));
        assert_eq!(stop().text(&sample(" Paris  Question:", false)), ("Paris".into(), 6));
        assert_eq!(stop().text(&sample(" Paris", true)), ("Paris".into(), 6));
        assert_eq!(stop().text(&sample("\n", false)), (String::new(), 1));
        assert_eq!(stop().text(&sample("", true)), (String::new(), 1));
    }
}
