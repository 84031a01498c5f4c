//! The end of a sampled answer, and the tokens that count.
//!
//! Everything here compares bytes, not text. A character may be split over several tokens. The text of half a
//! character is the replacement character U+FFFD, which can be longer than the character: text does not grow token
//! by token, but its bytes do.

use std::sync::Arc;

use prefix_scheduler::model::Tokenizer;
use prefix_scheduler::plan::{Finish, Stop, Token};
use prefix_scheduler::scheduler::generator::Sample;

/// Ends a sample at the model's end of turn or at a stop string.
pub(crate) struct TextStop {
    tokenizer: Arc<dyn Tokenizer>,
    /// Not empty strings.
    stops: Vec<String>,
    /// Bytes of the longest stop string; 0 if there is none.
    longest: usize,
}

/// Position of `wanted` in `bytes`. A match of UTF-8 text starts and ends at character boundaries.
fn find(bytes: &[u8], wanted: &str) -> Option<usize> {
    memchr::memmem::find(bytes, wanted.as_bytes())
}

impl TextStop {
    pub fn new(tokenizer: Arc<dyn Tokenizer>, stops: Vec<String>) -> Self {
        let longest = stops.iter().map(String::len).max().unwrap_or(0);
        Self { tokenizer, stops, longest }
    }

    /// The text before the first stop string, trimmed, and the number of leading tokens that spell it. An empty
    /// answer keeps one token, so its likelihood is that of the token that ended it.
    pub fn text(&self, sample: &Sample) -> (String, usize) {
        let own = match sample.tokens.split_last() {
            Some((last, before)) if self.tokenizer.ends_turn(*last) => before,
            _ => &sample.tokens[..],
        };
        let bytes = self.tokenizer.bytes(own);
        let stop = self.stops.iter().filter_map(|stop| find(&bytes, stop)).min();
        let before = &bytes[..stop.unwrap_or(bytes.len())];
        let text = String::from_utf8_lossy(before);
        // White space is valid UTF-8, so it has as many bytes here as in `before`.
        let kept = &before[..before.len() - (text.len() - text.trim_end().len())];
        if text.trim().is_empty() {
            return (String::new(), 1.min(sample.tokens.len()));
        }
        (text.trim().to_owned(), self.tokens_of(kept, own))
    }

    /// The least number of leading tokens such that every longer prefix of `own` begins with `kept`. The scan
    /// starts at the end: a stop string or white space after the kept bytes takes few tokens.
    fn tokens_of(&self, kept: &[u8], own: &[Token]) -> usize {
        let complete = |count: &usize| self.tokenizer.bytes(&own[..*count]).starts_with(kept);
        (1..own.len()).rev().take_while(complete).last().unwrap_or(own.len())
    }

    /// The last bytes of a sample: all, or as many as a stop string that ends in the last token can span.
    fn tail(&self, tokens: &[Token]) -> Vec<u8> {
        let reach = self.longest + self.tokenizer.bytes(&tokens[tokens.len().saturating_sub(1)..]).len();
        // Words have a few bytes. Short tokens, and tokens without text, widen the window.
        let mut window = self.longest / 4 + 2;
        loop {
            let tail = self.tokenizer.bytes(&tokens[tokens.len().saturating_sub(window)..]);
            if tail.len() >= reach || window >= tokens.len() {
                return tail[tail.len().saturating_sub(reach)..].to_vec();
            }
            window *= 2;
        }
    }
}

impl Stop for TextStop {
    fn ended(&self, tokens: &[Token]) -> Option<Finish> {
        if self.tokenizer.ends_turn(*tokens.last()?) {
            return Some(Finish::EndOfTurn);
        }
        let tail = self.tail(tokens);
        self.stops.iter().any(|stop| find(&tail, stop).is_some()).then_some(Finish::StopString)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prefix_scheduler::scripted::{ByteTokenizer, END};

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

    /// Every byte is a token here, so a character is split over up to four tokens.
    #[test]
    fn every_token_of_a_split_character_is_kept() {
        let whole = " Café 北京 🙂 ok";
        for length in 1..=whole.len() {
            let bytes = &whole.as_bytes()[..length];
            let tokens = bytes.iter().copied().map(Token::from).collect::<Vec<_>>();
            let expected = bytes.trim_ascii_end().len().max(1);
            let cut = Sample { log_probabilities: vec![-1.0; length], tokens, finish: Finish::Length };
            let text = String::from_utf8_lossy(bytes).trim().to_owned();
            assert_eq!(stop().text(&cut), (text, expected), "{length} bytes");
        }
        for whole in ["é", "Zoë", "北京", "🙂", "a 🙂 é"] {
            assert_eq!(stop().text(&sample(&format!("{whole}\n"), false)), (whole.into(), whole.len()));
            assert_eq!(stop().text(&sample(whole, true)), (whole.into(), whole.len()));
        }
    }

    /// 256 is a token without text.
    #[test]
    fn a_stop_string_is_seen_across_tokens_without_text_and_split_characters() {
        let stop = TextStop::new(Arc::new(ByteTokenizer::default()), vec!["。終".into()]);
        let with_gaps = |text: &str, gap: usize| {
            text.bytes().flat_map(|byte| [vec![Token::from(byte)], vec![256; gap]].concat()).collect::<Vec<_>>()
        };
        for gap in [0, 1, 20] {
            let tokens = with_gaps("東京。終", gap);
            let (last, before) = (tokens.len() - gap, tokens.len() - gap - 1);
            assert_eq!(stop.ended(&tokens[..last]), Some(Finish::StopString), "gap {gap}");
            assert_eq!(stop.ended(&tokens[..before]), None, "gap {gap}");
        }
    }
}
