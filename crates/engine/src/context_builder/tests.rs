use super::*;
use prefix_scheduler::model::{PromptFormat, Tokenizer};
use prefix_scheduler::plan::Token;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Merges up to three equal-class characters, so tokens of parts do not add up to tokens of the whole.
struct Merging;

impl Tokenizer for Merging {
    fn text(&self, text: &str) -> Vec<Token> {
        let class = |one: char| (one.is_alphanumeric(), one.is_whitespace(), one.is_ascii());
        let (mut tokens, mut run) = (Vec::new(), (class('a'), 3));
        for one in text.chars() {
            run = if run.0 == class(one) && run.1 < 3 { (run.0, run.1 + 1) } else { (class(one), 1) };
            if run.1 == 1 {
                tokens.push(0);
            }
        }
        tokens
    }

    fn template(&self, text: &str, _: bool) -> Vec<Token> {
        self.text(text)
    }

    fn bytes(&self, _: &[Token]) -> Vec<u8> {
        Vec::new()
    }

    fn ends_turn(&self, _: Token) -> bool {
        false
    }

    fn chat_frame(&self, _: PromptFormat) -> Result<Option<(String, String)>, String> {
        Ok(None)
    }
}

const PIECES: [&str; 16] =
    ["{", "}", "{{", "}}", "{n}", "{text}", "é", "東京", "\r\n", "\n", " ", "word", "two words ", "[1]", "🦀", "."];

fn pieces(random: &mut ChaCha8Rng, most: usize) -> String {
    (0..random.random_range(0..=most)).filter_map(|_| PIECES.choose(random)).copied().collect()
}

/// A random template, as the parts that it stands for.
fn parts(random: &mut ChaCha8Rng) -> Vec<(&'static str, String)> {
    let mut parts = Vec::new();
    let before = random.random_range(0..4);
    for place in 0..before + random.random_range(1..4) {
        parts.push(("", pieces(random, 3)));
        parts
            .push((if place == before { "text" } else { ["n", "id", "title"].choose(random).unwrap() }, String::new()));
    }
    parts.push(("", pieces(random, 3)));
    parts
}

struct Case {
    parts: Vec<(&'static str, String)>,
    separator: String,
    texts: Vec<(String, String, String)>,
    size: ContextSize,
}

impl Case {
    fn random(random: &mut ChaCha8Rng) -> Self {
        let texts = |random: &mut ChaCha8Rng| {
            let text = format!("{}x{}", pieces(random, 20), pieces(random, 20));
            (pieces(random, 2), pieces(random, 2).trim().to_owned(), text.trim().to_owned())
        };
        let most = random.random_range(0..200);
        Self {
            parts: parts(random),
            separator: pieces(random, 2),
            texts: (0..random.random_range(0..8)).map(|_| texts(random)).collect(),
            size: if random.random() { ContextSize::Tokens(most) } else { ContextSize::Characters(most) },
        }
    }

    fn template(&self) -> String {
        let part = |(field, literal): &(&str, String)| match *field {
            "" => literal.replace('{', "{{").replace('}', "}}"),
            field => format!("{{{field}}}"),
        };
        self.parts.iter().map(part).collect()
    }

    /// The written context, by concatenation.
    fn expected(&self, chosen: &[Source<'_>]) -> String {
        let passage = |(place, source): (usize, &Source<'_>)| {
            let part = |(field, literal): &(&str, String)| match *field {
                "n" => (place + 1).to_string(),
                "id" => source.id.to_owned(),
                "title" => source.title.to_owned(),
                "text" => source.text.to_owned(),
                _ => literal.clone(),
            };
            self.parts.iter().map(part).collect::<String>()
        };
        chosen.iter().enumerate().map(passage).collect::<Vec<String>>().join(&self.separator)
    }
}

#[test]
fn spans_and_sizes_of_random_templates_and_texts_are_exact() {
    let mut random = ChaCha8Rng::seed_from_u64(3);
    let (mut cuts, mut filled) = (0, 0);
    for _ in 0..10_000 {
        let case = Case::random(&mut random);
        let template = Template::new(&case.template()).unwrap();
        let writer =
            Writer { tokens: &|text| Merging.text(text).len(), template, separator: &case.separator, size: case.size };
        let source = |(index, (id, title, text)): (usize, &'_ (String, String, String))| {
            (index, id.clone(), title.clone(), text.clone(), 1.0 / real(index + 1))
        };
        let owned: Vec<_> = case.texts.iter().enumerate().map(source).collect();
        let sources: Vec<Source<'_>> = owned
            .iter()
            .map(|(index, id, title, text, value)| Source {
                index: *index,
                id,
                title,
                text,
                compressed: false,
                value: *value,
            })
            .collect();
        let reversed = |ranked: &[usize]| Ok(ranked.iter().rev().copied().collect());
        let may_cut = random.random();
        let fitting = fit(&Call::local(), &writer, &sources, usize::MAX, &reversed, may_cut).unwrap();
        let Written { text, size, spans } = &fitting.written;
        assert_eq!(*text, case.expected(&fitting.sources), "{:?}", case.template());
        let counted = match case.size {
            ContextSize::Tokens(_) => Merging.text(text).len(),
            ContextSize::Characters(_) => text.chars().count(),
        };
        assert!(*size == counted && counted <= writer.most(), "{size} {counted} {}", writer.most());
        assert_eq!(spans.len(), fitting.sources.len());
        for (span, source) in spans.iter().zip(&fitting.sources) {
            assert_eq!(&text[span.clone()], source.text);
            let (.., whole) = &case.texts[source.index];
            let is_cut = fitting.cut == Some(source.index);
            assert!(if is_cut { may_cut && whole.starts_with(source.text) } else { source.text == whole });
        }
        let order: Vec<usize> = fitting.sources.iter().map(|source| source.index).collect();
        assert!(order.is_sorted_by(|one, next| one > next), "as arranged: {order:?}");
        cuts += usize::from(fitting.cut.is_some());
        filled += usize::from(fitting.sources.len() > 1);
    }
    assert!(cuts > 500 && filled > 2_000, "{cuts} {filled}");
}

fn of_title(index: usize, title: &'static str) -> Source<'static> {
    Source { index, id: "", title, text: "four", compressed: false, value: 2.0 }
}

#[test]
fn a_bound_per_source_limits_what_a_context_may_hold() {
    let sources: Vec<_> =
        ["a", "b", "a", "", "", "a"].into_iter().enumerate().map(|(at, title)| of_title(at, title)).collect();
    assert_eq!([1, 2, 3, usize::MAX].map(|most| allowed(&sources, most)), [4, 5, 6, 6]);
    assert_eq!(allowed(&[], 1), 0);
}

#[test]
fn a_cut_passage_has_a_share_of_its_value() {
    let sources = [of_title(3, ""), of_title(5, "")];
    let value = |text, cut| {
        let chosen = vec![of_title(3, ""), Source { text, ..of_title(5, "") }];
        Fitting { written: Written::default(), sources: chosen, cut }.value(&sources)
    };
    assert!((value("four", None) - 4.0).abs() < 1e-9);
    assert!((value("f", Some(5)) - 2.5).abs() < 1e-9);
}

#[test]
fn a_passage_whose_whole_text_fits_is_not_cut() {
    let words = "one two three four five six seven eight nine ten eleven twelve";
    let template = Template::new("{text}").unwrap();
    let writer = |most: usize| Writer {
        tokens: &|text| Merging.text(text).len(),
        template: template.clone(),
        separator: "",
        size: ContextSize::Characters(most),
    };
    let sources = vec![Source { text: words, ..of_title(0, "") }];
    let whole = begin(&writer(words.len()), sources.clone(), 0).unwrap();
    assert_eq!((whole.written.text.as_str(), whole.cut), (words, None));
    // Without a word, less than the least cut of 64 characters is left.
    assert!(begin(&writer(words.len() - 1), sources, 0).is_none());
}

#[test]
fn the_value_of_a_score() {
    // Odds of 3, and odds of 1: no better than no passage.
    assert!((value(0.75) - 2.0).abs() < 1e-9);
    assert!(value(0.5) > value(0.2) && value(0.2) > 0.0 && value(0.5) < 1e-5);
    assert!(value(1.0).is_finite() && value(0.0) > 0.0);
}

#[test]
fn ends_of_words() {
    assert_eq!(word_ends("é  b, 3.5\r\nc"), [2, 5, 10]);
    assert_eq!(word_ends("東京。"), [3, 6]);
    assert_eq!(word_ends("word"), Vec::<usize>::new());
}
