//! Prompt format: the text around the user's message.

use super::YesNoPrompt;

/// How prompts use the chat template of the model's file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PromptFormat {
    /// The built-in template of llama.cpp that matches the file's template. The file's template is not evaluated.
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

/// Identity for stored measurements of a generator, such as its position bias: its [`weights`](super::weights), the
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

    /// A profile that was measured with the template does not hold for prompts without it.
    #[test]
    fn measurements_belong_to_a_frame() {
        let of = PromptFormat::ALL.map(|frame| measured_on("aa+bbx1", frame, YesNoPrompt::Generic));
        assert_eq!(of, ["aa+bbx1", "aa+bbx1-jinja", "aa+bbx1-plain"]);
        let reranker = PromptFormat::ALL.map(|frame| measured_on("aa", frame, YesNoPrompt::Qwen3));
        assert_eq!(reranker, ["aa-qwen3", "aa-jinja-qwen3", "aa-plain-qwen3"]);
    }
}
