//! Prompt format: the text around the user's message.

use super::YesNoPrompt;

/// Use of the chat template of the model's file in prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PromptFormat {
    /// The built-in template of llama.cpp that it recognises in the file's template. It does not evaluate templates.
    #[default]
    Chat,
    /// The file's own template, evaluated (Jinja).
    Jinja,
    /// No template: prompts are plain text.
    Plain,
}

impl PromptFormat {
    /// All prompt formats.
    pub const ALL: [Self; 3] = [Self::Chat, Self::Jinja, Self::Plain];

    /// Its name in commands and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Jinja => "jinja",
            Self::Plain => "plain",
        }
    }
}

/// Identity under which measurements of a generator, such as its position bias, are stored: its [`weights`](super::weights), the
/// prompt format if it is not llama.cpp's, and the prompt of a causal reranker.
#[must_use]
pub fn measured_on(weights: &str, frame: PromptFormat, yes_no: YesNoPrompt) -> String {
    let frame = (frame != PromptFormat::Chat).then(|| frame.name());
    let yes_no = (yes_no != YesNoPrompt::Generic).then(|| yes_no.name());
    std::iter::once(weights).chain(frame).chain(yes_no).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A profile that was measured with the template says nothing about prompts without it.
    #[test]
    fn measurements_belong_to_a_frame() {
        let of = PromptFormat::ALL.map(|frame| measured_on("aa+bbx1", frame, YesNoPrompt::Generic));
        assert_eq!(of, ["aa+bbx1", "aa+bbx1-jinja", "aa+bbx1-plain"]);
        let reranker = PromptFormat::ALL.map(|frame| measured_on("aa", frame, YesNoPrompt::Qwen3));
        assert_eq!(reranker, ["aa-qwen3", "aa-jinja-qwen3", "aa-plain-qwen3"]);
    }
}
