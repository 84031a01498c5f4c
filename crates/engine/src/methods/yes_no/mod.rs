//! Yes or No in single-passage prompts (relevance generation; Liang et al., 2022).
//!
//! ```text
//! utility of p  =  log P(Yes | p) − log P(No | p)  −  (log P(Yes | "N/A") − log P(No | "N/A"))
//! ```
//!
//! The prompt is the judgement of relevance (`engine::judgement`). A generator prefers one of the two words for any
//! passage; the second difference removes that preference: at 0 a passage is as good as none. The difference is the
//! same for all passages, so it shifts scores but keeps the order.
//!
//! A causal reranker has its own prompt and words (`prompt`). Nothing is subtracted there, and 0 does not mean "no
//! better than none": the model was trained for relevance, or only for an order.

mod prompt;

use std::sync::Arc;

use super::{Method, Pointwise, Prompt, PromptShape, Ranking, Scores, Task};
use crate::judgement::{Asks, JudgementPrompt};
use crate::prompt::{Language, PassageForm, PassageTokens};
use crate::types::{EngineError, MethodRef, RerankRequest};
use prefix_scheduler::model::YesNoPrompt;
use prefix_scheduler::plan::{Segment, Token};
use prompt::RerankerPrompt;
pub use prompt::words;

/// The text of a passage without content.
const NO_CONTENT: &str = "N/A";

/// Utility in nats: log-odds of Yes, minus the log-odds without content.
pub(super) struct YesNo;

impl Method for YesNo {
    fn name(&self) -> &'static str {
        "yes-no"
    }

    fn summary(&self) -> &'static str {
        "log-odds of Yes over No to \"does it help?\", less those of an empty passage, each passage alone; a causal reranker's own score"
    }

    fn prompts(&self, request: &RerankRequest, language: &Language) -> Option<PromptShape> {
        let overhead = match RerankerPrompt::of(language.yes_no()) {
            Some(prompt) => prompt.overhead(language, &request.prefix),
            None => Asks::Helps.overhead(language),
        };
        Some(PromptShape { longest: 1, overhead })
    }

    fn knows_rerankers(&self) -> bool {
        true
    }

    fn passage_form(&self, language: &Language) -> PassageForm {
        match language.yes_no() {
            YesNoPrompt::Generic => PassageForm::Labelled,
            _ => PassageForm::Bare,
        }
    }

    fn begin(&self, task: Arc<Task>) -> Result<Box<dyn Ranking>, EngineError> {
        let language = task.language()?;
        let prefix = &task.request.prefix;
        if let Some(prompt) = RerankerPrompt::of(language.yes_no()) {
            return Ok(by_reranker(&prompt, Arc::clone(&task), language));
        }
        if !prefix.is_built_in() {
            let problem = "yes-no does not take it: only the prompts of causal rerankers have one (yes_no_prompt of the generator or scorer)";
            return Err(EngineError::invalid(prefix.field(), problem));
        }
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

/// The warning if the method asks a causal reranker otherwise than it was trained.
pub fn not_as_trained(method: MethodRef, language: &Language) -> Option<&'static str> {
    let other = language.yes_no() != YesNoPrompt::Generic && !method.knows_rerankers();
    other.then_some(
        "the model that scores is a causal reranker, which the method yes-no asks as it was trained: this method may rank badly with it",
    )
}

/// The ranking by a reranker's own prompt. All passages share prompt prefix and query.
fn by_reranker(prompt: &RerankerPrompt, task: Arc<Task>, language: &Language) -> Box<dyn Ranking> {
    let prefix = prompt.prefix(language, &task.request.prefix);
    let query = Segment::context(prompt.query(language, &task.request.query));
    let closing = prompt.closing(language, &task.request.prefix);
    let words = prompt.scored(language);
    let of_passage = |passage: &Arc<[Token]>| {
        // One segment, so that no passage is cached after one query.
        let passage = Segment::context([passage, &closing[..]].concat());
        let shared = [prefix.clone(), query.clone(), passage];
        words.iter().map(move |word| Prompt::scored(shared.iter().chain([word]).cloned().collect())).collect::<Vec<_>>()
    };
    let prompts = task.passages.iter().flat_map(of_passage).collect();
    let (prompt, count) = (*prompt, words.len());
    let utility = move |scores: &Scores, passage: usize| {
        prompt.utility((passage * count..(passage + 1) * count).map(|prompt| scores.last(prompt).iter().sum()))
    };
    Pointwise::boxed(task, prompts, 1.0, utility)
}

/// Log-odds of Yes over No after a passage; its two prompts are adjacent.
fn log_odds(scores: &Scores, passage: usize) -> f64 {
    scores.last(2 * passage).iter().sum::<f64>() - scores.last(2 * passage + 1).iter().sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{order, run, task};
    use super::*;
    use crate::methods::Budget;
    use numeric::{descending, sigmoid};
    use prefix_scheduler::plan::Reads;

    /// True if the prompt ends in Yes.
    fn yes(prompt: &Prompt) -> bool {
        prompt.segments.last().is_some_and(|verdict| verdict.tokens[1] == Token::from(b'Y'))
    }

    /// The worked case of the design notes: log P(Yes) -1.2 and log P(No) -0.4 give -0.8, a score of 0.310, if the
    /// prompt without content is indifferent. If it gives -1 and -0.5, that is -0.5, the utility is -0.3.
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

    /// A causal reranker's words are scored after one query, with no prompt without a passage.
    #[test]
    fn a_rerankers_prompts_share_opening_and_query() {
        let task = task(3);
        let language = task.language.as_ref().unwrap();
        let prompt = RerankerPrompt::of(YesNoPrompt::BgeGemma).unwrap();
        let mut ranking = by_reranker(&prompt, Arc::clone(&task), language);
        let budget = Budget { tokens: usize::MAX, counted: usize::MAX, context: usize::MAX, kept: None };
        let prompts = ranking.next(&budget, &prefix_scheduler::call::Call::local()).unwrap().unwrap();
        assert_eq!(prompts.len(), 3);
        let [prefix, query, passage, word] = &prompts[1].segments[..] else { panic!("four segments") };
        assert!(passage.tokens.starts_with(&task.passages[1]));
        assert_eq!((language.tokenizer.detokenize(&word.tokens).as_str(), word.reads), ("Yes", Reads::Logit));
        // The bytes of the words except the last one, which is predicted and not evaluated.
        let passages: usize =
            prompts.iter().map(|prompt| prompt.segments[2].tokens.len() + word.tokens.len() - 1).sum();
        assert_eq!(Budget::cost(&prompts).tokens, prefix.tokens.len() + query.tokens.len() + passages);
    }

    /// Costs of the design notes: N passage evaluations and N suffixes; here one more of each, without content.
    #[test]
    fn both_words_share_their_prompt() {
        let n = 10;
        let ran = run(&YesNo, n, usize::MAX, &|_| -1.0);
        assert_eq!(ran.rounds[0].len(), 2 * (n + 1));
        let task = task(n);
        let [prefix, passage, cue, verdict] = &ran.rounds[0][0].segments[..] else { panic!("four segments") };
        let no_content = ran.rounds[0][2 * n].segments[1].tokens.len();
        assert_eq!(passage.tokens, task.passages[0]);
        // The last token of a verdict is not evaluated: with words of one token, verdicts cost nothing.
        let words = verdict.tokens.len() - 1 + " No".len() - 1;
        let suffixes = (n + 1) * (cue.tokens.len() + words);
        let expected = prefix.tokens.len() + n * passage.tokens.len() + no_content + suffixes;
        assert_eq!(Budget::cost(&ran.rounds[0]).tokens, expected);
    }
}
