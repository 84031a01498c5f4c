//! The caller's template of a passage. Braces inside of texts are never read as a template.

use std::ops::Range;

/// Most characters of a template.
const MOST_CHARACTERS: usize = 4_000;

/// The template of a passage with a title, if the caller gives none.
const TITLED: &str = "[{n}] {title}\n{text}";
/// The template of a passage without a title, if the caller gives none.
const UNTITLED: &str = "[{n}] {text}";

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Number,
    Id,
    Title,
    Text,
}

/// The values of a passage.
#[derive(Debug, Clone, Copy)]
pub(super) struct Values<'a> {
    pub number: usize,
    pub id: &'a str,
    pub title: &'a str,
    pub text: &'a str,
}

/// How passages are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template {
    titled: Vec<Part>,
    untitled: Vec<Part>,
}

impl Template {
    /// The caller's template, or the built-in one if it is empty.
    ///
    /// # Errors
    /// The fault of the template, in words.
    pub fn new(template: &str) -> Result<Self, String> {
        let (titled, untitled) = if template.is_empty() { (TITLED, UNTITLED) } else { (template, template) };
        Ok(Self { titled: parse(titled)?, untitled: parse(untitled)? })
    }

    /// Appends a passage to `written`. Returns the bytes of `written` that hold its text.
    pub fn write(&self, values: Values<'_>, written: &mut String) -> Range<usize> {
        let mut span = 0..0;
        for part in if values.title.is_empty() { &self.untitled } else { &self.titled } {
            match part {
                Part::Literal(literal) => written.push_str(literal),
                Part::Number => written.push_str(&values.number.to_string()),
                Part::Id => written.push_str(values.id),
                Part::Title => written.push_str(values.title),
                Part::Text => {
                    span = written.len()..written.len() + values.text.len();
                    written.push_str(values.text);
                }
            }
        }
        span
    }
}

fn parse(template: &str) -> Result<Vec<Part>, String> {
    let characters = template.chars().count();
    if characters > MOST_CHARACTERS {
        return Err(format!("{characters} characters given, at most {MOST_CHARACTERS} allowed"));
    }
    let (mut parts, mut literal, mut rest) = (Vec::new(), String::new(), template);
    while let Some(at) = rest.find(['{', '}']) {
        literal.push_str(&rest[..at]);
        let (brace, after) = rest[at..].split_at(1);
        if let Some(after) = after.strip_prefix(brace) {
            literal.push_str(brace);
            rest = after;
            continue;
        }
        let place = template.len() - rest.len() + at;
        let alone = || format!("byte {place}: {brace} is not part of a field; write {brace}{brace} for a brace");
        let (name, after) = after.split_once('}').filter(|_| brace == "{").ok_or_else(alone)?;
        let part = match name {
            "n" => Part::Number,
            "id" => Part::Id,
            "title" => Part::Title,
            "text" => Part::Text,
            _ => {
                let name = rag_metrics::quoted(name);
                return Err(format!(
                    "byte {place}: unknown field {name}; must be {{n}}, {{id}}, {{title}} or {{text}}, and {{{{ for a \
                     brace"
                ));
            }
        };
        if !literal.is_empty() {
            parts.push(Part::Literal(std::mem::take(&mut literal)));
        }
        parts.push(part);
        rest = after;
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(Part::Literal(literal));
    }
    match parts.iter().filter(|part| **part == Part::Text).count() {
        1 => Ok(parts),
        count => Err(format!("must have {{text}} once, has it {count} times")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(template: &str, title: &str, text: &str) -> (String, String) {
        let mut whole = "before ".to_owned();
        let span = Template::new(template).unwrap().write(Values { number: 3, id: "a{n}", title, text }, &mut whole);
        let text = whole[span].to_owned();
        (whole, text)
    }

    #[test]
    fn fields_are_replaced_and_braces_of_values_stay() {
        let rows = [
            ("", "T", "x", "before [3] T\nx"),
            ("", "", "x", "before [3] x"),
            ("{{{text}}} {n}{n}", "", "{title}", "before {{title}} 33"),
            ("<{id}|{title}>\r\n{text}", "{text}", "}{", "before <a{n}|{text}>\r\n}{"),
            ("é{text}é", "", "東京 {{", "before é東京 {{é"),
        ];
        for (template, title, text, expected) in rows {
            assert_eq!(written(template, title, text), (expected.to_owned(), text.to_owned()), "{template:?}");
        }
    }

    #[test]
    fn a_wrong_template_is_refused_with_its_place() {
        let rows = [
            ("{text} {", "byte 7: { is not part of a field; write {{ for a brace"),
            ("é} {text}", "byte 2: } is not part of a field; write }} for a brace"),
            ("{text} {body}", "byte 7: unknown field \"body\""),
            ("{ text }", "byte 0: unknown field \" text \""),
            ("{{text}}", "must have {text} once, has it 0 times"),
            ("{text}{text}", "must have {text} once, has it 2 times"),
        ];
        for (template, problem) in rows {
            let found = Template::new(template).unwrap_err();
            assert!(found.starts_with(problem), "{template:?}: {found}");
        }
        let long = "x".repeat(4_001);
        assert_eq!(Template::new(&long).unwrap_err(), "4001 characters given, at most 4000 allowed");
    }
}
