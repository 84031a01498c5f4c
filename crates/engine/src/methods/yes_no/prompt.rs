//! The prompts of causal rerankers, as used in their training. The query comes before the passage.
//!
//! ```text
//! [prompt prefix: chat template, instruction, lead] [query, lead] [passage, end of the chat template] [word, scored]
//! ```
//!
//! | prompt | words | utility | source |
//! |---|---|---|---|
//! | qwen3 | `yes`, `no` | log P(yes) − log P(no) | Qwen3-Reranker's card; single newlines, as llama.cpp's converter writes them |
//! | bge-gemma | `Yes` | the logit of Yes | FlagEmbedding, inference/reranker/decoder_only/base.py |
//! | mxbai-base, mxbai-large | `1`, `0` | log P(1) − log P(0) − 4.5 or 6, so that 0 is the half of its normalised scores | mxbai-rerank, mxbai_rerank_v2.py |
//!
//! Texts are tokenised in the same parts as in the models' programs.

use crate::prompt::Language;
use crate::types::PromptPrefix;
use prefix_scheduler::model::Tokenizer;
use prefix_scheduler::model::YesNoPrompt;
use prefix_scheduler::plan::{Segment, Token};

/// The parts of a causal reranker's prompt.
#[derive(Debug, Clone, Copy)]
pub(super) struct RerankerPrompt {
    /// Template text before the user's message.
    before: &'static str,
    /// The instruction if the caller gives none; may be empty.
    instruction: &'static str,
    /// Before and after an instruction that precedes the query.
    instruct: Option<[&'static str; 2]>,
    /// Before the query.
    query: &'static str,
    /// Between query and passage, tokenised together with the query.
    joined: &'static str,
    /// The words, tokenised separately.
    apart: &'static [&'static str],
    /// After the passage, tokenised separately; an instruction there replaces the last one.
    behind: &'static [&'static str],
    /// Template text before the answer.
    after: &'static str,
    /// The word of a relevant passage, and of an irrelevant one if that counts.
    words: (&'static str, Option<&'static str>),
    /// Subtracted from the difference of the words' log-probabilities.
    half: f64,
}

const CHATML_ANSWER: &str = "<|im_end|>\n<|im_start|>assistant\n";

const QWEN3: RerankerPrompt = RerankerPrompt {
    before: "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note \
             that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n",
    instruction: "Given a web search query, retrieve relevant passages that answer the query",
    instruct: Some(["<Instruct>: ", "\n"]),
    query: "<Query>:",
    joined: "\n<Document>:",
    apart: &[],
    behind: &[],
    after: "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
    words: ("yes", Some("no")),
    half: 0.0,
};

const BGE_GEMMA: RerankerPrompt = RerankerPrompt {
    before: "",
    instruction: "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a \
                  prediction of either 'Yes' or 'No'.",
    instruct: None,
    query: "A:",
    joined: "",
    apart: &["\n", "B:"],
    behind: &["\n"],
    after: "",
    words: ("Yes", None),
    half: 0.0,
};

const MXBAI: RerankerPrompt = RerankerPrompt {
    before: "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n<|im_start|>user\n",
    instruction: "",
    instruct: Some(["instruction: ", "\n"]),
    query: "query:",
    joined: "",
    apart: &["\n", "document:"],
    behind: &[
        "\n",
        "You are a search relevance expert who evaluates how well documents match search queries. For each query-document pair, \
         carefully analyze the semantic relationship between them, then provide your binary relevance judgment (0 for not relevant, 1 \
         for relevant).\nRelevance:",
    ],
    after: CHATML_ANSWER,
    words: ("1", Some("0")),
    half: 4.5,
};

impl RerankerPrompt {
    /// The prompt that a model was trained with; `None` for the generic one.
    pub const fn of(prompt: YesNoPrompt) -> Option<Self> {
        match prompt {
            YesNoPrompt::Generic => None,
            YesNoPrompt::Qwen3 => Some(QWEN3),
            YesNoPrompt::BgeGemma => Some(BGE_GEMMA),
            YesNoPrompt::MxbaiBase => Some(MXBAI),
            YesNoPrompt::MxbaiLarge => Some(Self { half: 6.0, ..MXBAI }),
        }
    }

    /// The utility of a passage from the scores of its words, in order.
    pub fn utility(&self, read: impl Iterator<Item = f64>) -> f64 {
        let signed = read.zip([1.0, -1.0]).map(|(value, sign)| sign * value);
        signed.sum::<f64>() - self.half
    }

    fn words(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.words.0).chain(self.words.1)
    }

    /// The scored segments of each passage, one per word.
    pub fn scored(&self, language: &Language) -> Vec<Segment> {
        let segment = |word: &str| match self.words.1 {
            Some(_) => Segment::scored(language.text(word), 0),
            None => Segment::logits(language.text(word)),
        };
        self.words().map(segment).collect()
    }

    fn instruction<'a>(&'a self, prefix: &'a PromptPrefix) -> &'a str {
        match prefix.instruction.trim() {
            "" => self.instruction,
            own => own,
        }
    }

    /// The tokens before the query, equal for all queries with the same instruction.
    pub fn prefix(&self, language: &Language, prefix: &PromptPrefix) -> Segment {
        let instruction = self.instruction(prefix);
        let lead = match self.instruct {
            Some([before, after]) if !instruction.is_empty() => format!("{before}{instruction}{after}{}", self.query),
            _ => self.query.to_owned(),
        };
        // Only the beginning of the sequence may precede it.
        let before = language.tokenizer.template(self.before, true);
        let text = if self.before.is_empty() { language.tokenizer.first_text(&lead) } else { language.text(&lead) };
        Segment::context([before, text].concat())
    }

    /// A trimmed query, up to the start of the passage.
    pub fn query(&self, language: &Language, query: &str) -> Vec<Token> {
        let text = language.text(&format!(" {}{}", query.trim(), self.joined));
        text.into_iter().chain(self.apart.iter().flat_map(|part| language.text(part))).collect()
    }

    /// The tokens between a passage and the answer.
    pub fn closing(&self, language: &Language, prefix: &PromptPrefix) -> Vec<Token> {
        let behind = self.behind.iter().flat_map(|part| language.text(part));
        // An instruction that does not precede the query goes here.
        let instruction = if self.instruct.is_none() { language.text(self.instruction(prefix)) } else { Vec::new() };
        behind.chain(instruction).chain(language.tokenizer.template(self.after, false)).collect()
    }

    /// Tokens of the prompt that are neither passage nor query.
    pub fn overhead(&self, language: &Language, prefix: &PromptPrefix) -> usize {
        // The word is one token.
        let between = self.query(language, "").len();
        self.prefix(language, prefix).tokens.len() + between + self.closing(language, prefix).len() + 1
    }
}

/// The tokens that answer a prompt; none for the generic one, whose words may have several tokens.
///
/// # Errors
/// The word that is not a single token of this vocabulary, so that the model cannot give its trained answer.
pub fn words(prompt: YesNoPrompt, tokenizer: &dyn Tokenizer) -> Result<Vec<Token>, String> {
    let Some(own) = RerankerPrompt::of(prompt) else { return Ok(Vec::new()) };
    let token = |word: &str| match tokenizer.text(word)[..] {
        [token] => Ok(token),
        _ => Err(format!("the prompt {} is answered by {word:?}, which is not one token of this model", prompt.name())),
    };
    own.words().map(token).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use prefix_scheduler::model::PromptFormat;
    use prefix_scheduler::scripted::ByteTokenizer;

    /// The whole prompt as text, and the scored words.
    fn text(prompt: YesNoPrompt, instruction: &str) -> (String, Vec<String>) {
        let language = Language::new(Arc::new(ByteTokenizer::default()), PromptFormat::Plain);
        let prefix = PromptPrefix { instruction: instruction.into(), ..PromptPrefix::default() };
        let prompt = RerankerPrompt::of(prompt).unwrap();
        let plain = |tokens: &[Token]| language.tokenizer.detokenize(tokens);
        let query = prompt.query(&language, " who? ");
        // A sequence begins with its token, even if no chat template precedes the text.
        assert_eq!(prompt.prefix(&language, &prefix).tokens[0], 256);
        let [lead, closing] = [prompt.prefix(&language, &prefix).tokens.to_vec(), prompt.closing(&language, &prefix)];
        let known = lead.len() + query.len() + closing.len() + 1;
        // The query of an empty text is the space before it.
        assert_eq!(prompt.overhead(&language, &prefix) + "who?".len(), known);
        let words = prompt.scored(&language).iter().map(|word| plain(&word.tokens)).collect();
        (format!("{}{} It rained.{}", plain(&lead), plain(&query), plain(&closing)), words)
    }

    #[test]
    fn each_prompt_is_that_of_its_model() {
        let qwen3 = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct \
                     provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n\
                     <Instruct>: Given a web search query, retrieve relevant passages that answer the query\n\
                     <Query>: who?\n<Document>: It rained.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n";
        assert_eq!(text(YesNoPrompt::Qwen3, " "), (qwen3.into(), vec!["yes".into(), "no".into()]));
        let bge = "A: who?\nB: It rained.\nGiven a query A and a passage B, determine whether the passage contains an answer to the \
                   query by providing a prediction of either 'Yes' or 'No'.";
        assert_eq!(text(YesNoPrompt::BgeGemma, ""), (bge.into(), vec!["Yes".into()]));
        let (mxbai, words) = text(YesNoPrompt::MxbaiBase, "");
        assert!(
            mxbai.contains("<|im_start|>user\nquery: who?\ndocument: It rained.\nYou are a search relevance"),
            "{mxbai}"
        );
        assert!(mxbai.ends_with("1 for relevant).\nRelevance:<|im_end|>\n<|im_start|>assistant\n"), "{mxbai}");
        assert_eq!(words, ["1", "0"]);
    }

    #[test]
    fn the_callers_instruction_stands_where_the_model_expects_it() {
        let of = |prompt| text(prompt, " Find code. ").0;
        assert!(of(YesNoPrompt::Qwen3).contains("user\n<Instruct>: Find code.\n<Query>: who?"));
        assert!(of(YesNoPrompt::MxbaiLarge).contains("user\ninstruction: Find code.\nquery: who?"));
        assert_eq!(of(YesNoPrompt::BgeGemma), "A: who?\nB: It rained.\nFind code.");
    }

    #[test]
    fn utilities_are_as_the_models_own_programs_score() {
        let of = |prompt, read: &[f64]| RerankerPrompt::of(prompt).unwrap().utility(read.iter().copied());
        assert_eq!(of(YesNoPrompt::Qwen3, &[-0.5, -2.0]).to_bits(), 1.5_f64.to_bits());
        assert_eq!(of(YesNoPrompt::BgeGemma, &[7.25]).to_bits(), 7.25_f64.to_bits());
        assert_eq!(of(YesNoPrompt::MxbaiBase, &[-0.5, -8.0]).to_bits(), 3.0_f64.to_bits());
        assert_eq!(of(YesNoPrompt::MxbaiLarge, &[-0.5, -8.0]).to_bits(), 1.5_f64.to_bits());
    }

    #[test]
    fn a_vocabulary_must_have_the_words() {
        let bytes = ByteTokenizer::default();
        assert_eq!(words(YesNoPrompt::Generic, &bytes), Ok(vec![]));
        assert_eq!(words(YesNoPrompt::MxbaiBase, &bytes), Ok(vec![49, 48]), "a digit is a byte");
        let missing = words(YesNoPrompt::Qwen3, &bytes).unwrap_err();
        assert_eq!(missing, "the prompt qwen3 is answered by \"yes\", which is not one token of this model");
    }
}
