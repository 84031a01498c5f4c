//! Yes or No after each passage alone (relevance generation; Liang et al., 2022).
//!
//! ```text
//! utility of p  =  log P(Yes | p) − log P(No | p)  −  (log P(Yes | "N/A") − log P(No | "N/A"))
//! ```
//!
//! The prompt is that of the judgement of relevance (`engine::judgement`). A reader prefers one of the two words before it has
//! read anything; the second difference removes that: 0 is a passage that says as much as none. The difference is the same
//! for all passages, so it moves scores and not the order.

use std::sync::Arc;

use super::{Method, Pointwise, Prompt, PromptShape, Ranking, Scores, Task};
use crate::engine::EngineError;
use crate::engine::judgement::{Asks, JudgementPrompt};
use crate::engine::prompt::{Language, PassageTokens};
use crate::engine::rerank::RerankRequest;
use crate::plan::{Segment, Token};

/// The text of a passage without content.
const NO_CONTENT: &str = "N/A";

/// Utility in nats: log-odds of Yes, above those without content.
pub(super) struct YesNo;

impl Method for YesNo {
    fn name(&self) -> &'static str {
        "yes-no"
    }

    fn summary(&self) -> &'static str {
        "log-odds of Yes over No to \"does it help?\", less those of an empty passage, each passage alone"
    }

    fn prompts(&self, _: &RerankRequest, language: &Language) -> Option<PromptShape> {
        Some(PromptShape { longest: 1, overhead: Asks::Helps.overhead(language) })
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let language = task.language()?;
        let prompt = JudgementPrompt::new(Asks::Helps, language, &task.query);
        let no_content = PassageTokens::new(language.tokenizer.as_ref(), "", NO_CONTENT).cut(usize::MAX).0;
        let passages = task.passages.iter().cloned().chain([no_content.into()]);
        let verdicts = |passage: Arc<[Token]>| prompt.verdicts(&Segment::context(passage)).map(Prompt::scored);
        let prompts = passages.flat_map(verdicts).collect();
        let without = task.passages.len();
        let utility = move |scores: &Scores, passage| log_odds(scores, passage) - log_odds(scores, without);
        Ok(Pointwise::zeroed(task, prompts, 1.0, utility))
    }
}

/// Log-odds of Yes over No after a passage, whose two prompts follow each other.
fn log_odds(scores: &Scores, passage: usize) -> f64 {
    scores.last(2 * passage).iter().sum::<f64>() - scores.last(2 * passage + 1).iter().sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{order, run, task};
    use super::*;
    use crate::engine::methods::Budget;
    use crate::numeric::{descending, sigmoid};

    /// Whether the prompt ends in Yes.
    fn yes(prompt: &Prompt) -> bool {
        prompt.segments.last().is_some_and(|verdict| verdict.tokens[1] == Token::from(b'Y'))
    }

    /// The worked case of the design notes: log P(Yes) -1.2 and log P(No) -.4 are -.8, a score of .310, where the prompt
    /// without content is indifferent. Where it says -1 and -.5, which is -.5, the utility is -.3.
    #[test]
    fn the_label_bias_is_subtracted() {
        for (without, utility, score) in [([-0.7, -0.7], -0.8, 0.310), ([-1.0, -0.5], -0.3, 0.426)] {
            let answer = |prompt: &Prompt| {
                let [of_yes, of_no] = if order(prompt).is_empty() { without } else { [-1.2, -0.4] };
                if yes(prompt) { of_yes } else { of_no }
            };
            let ran = run(&YesNo, 1, usize::MAX, &answer);
            assert!((ran.scored.utilities[0] - utility).abs() < 1e-9);
            assert!((sigmoid(ran.scored.utilities[0] / ran.scored.unit) - score).abs() < 5e-4);
            assert_eq!((ran.rounds.len(), ran.scored.ranking), (1, vec![0]));
        }
    }

    #[test]
    fn the_order_is_that_of_the_log_odds() {
        let table = [0.2, -1.0, 3.0, 0.2];
        let answer = |prompt: &Prompt| if yes(prompt) { order(prompt).first().map_or(5.0, |&p| table[p]) } else { 0.0 };
        let ran = run(&YesNo, 4, usize::MAX, &answer);
        assert_eq!(ran.scored.ranking, descending(&table));
        assert!((ran.scored.utilities[2] + 2.0).abs() < 1e-9, "3 less 5 without content");
    }

    /// Costs of the design notes: N blocks and N suffixes; here one more of each, without content.
    #[test]
    fn both_words_share_their_prompt() {
        let n = 10;
        let ran = run(&YesNo, n, usize::MAX, &|_| -1.0);
        assert_eq!(ran.rounds[0].len(), 2 * (n + 1));
        let task = task(n);
        let [opening, passage, cue, verdict] = &ran.rounds[0][0].segments[..] else { panic!("four segments") };
        let no_content = ran.rounds[0][2 * n].segments[1].tokens.len();
        assert_eq!(passage.tokens, task.passages[0]);
        // The last token of a verdict is not evaluated: with words of one token, verdicts cost nothing.
        let words = verdict.tokens.len() - 1 + " No".len() - 1;
        let suffixes = (n + 1) * (cue.tokens.len() + words);
        let expected = opening.tokens.len() + n * passage.tokens.len() + no_content + suffixes;
        assert_eq!(Budget::cost(&ran.rounds[0]).tokens, expected);
    }
}
