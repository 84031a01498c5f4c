//! Passages.

/// A passage to be ranked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Passage {
    /// Identifier that the caller chooses; unique in the request.
    pub id: String,
    /// Title, set before the text in prompts; may be empty.
    pub title: String,
    /// Text. A passage with only a title is ranked by its title. Without both, it comes last.
    pub text: String,
    /// Score of the retriever; finite. Higher is better.
    pub retriever_score: Option<f64>,
}

impl Passage {
    /// Title and text together, for measures of words.
    #[must_use]
    pub fn whole_text(&self) -> String {
        format!("{} {}", self.title, self.text)
    }

    /// True if it has neither title nor text.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        [&self.title, &self.text].iter().all(|text| unmarked(text).trim().is_empty())
    }

    /// Drops byte-order marks at the beginning. A title without text becomes the text.
    pub(crate) fn tidy(&mut self) {
        let (title, text) = read_as(&self.title, &self.text);
        (self.title, self.text) = (title.to_owned(), text.to_owned());
    }
}

/// A text without the byte-order mark that some programs prepend.
pub(crate) fn unmarked(text: &str) -> &str {
    text.trim_start_matches('\u{feff}')
}

/// Title and text for prompts: a title without text counts as text.
pub(crate) fn read_as<'a>(title: &'a str, text: &'a str) -> (&'a str, &'a str) {
    let (title, text) = (unmarked(title), unmarked(text));
    if text.trim().is_empty() { ("", title) } else { (title, text) }
}

impl Passage {
    /// A passage without title and retriever score; its id is its index in the request.
    #[must_use]
    pub fn untitled(index: usize, text: String) -> Self {
        Self { id: index.to_string(), text, ..Self::default() }
    }
}

/// The end of a passage's text that truncation drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CutSide {
    /// Its last tokens.
    #[default]
    End,
    /// Its first tokens.
    Beginning,
}
