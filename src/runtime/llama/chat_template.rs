//! The chat template of a GGUF file, evaluated as it is written. Templates are Jinja programs; what they may use is what the
//! library transformers gives them.

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value, context};

/// Instructions that a template may take. One takes some hundreds for a message.
const MOST_INSTRUCTIONS: u64 = 100_000;

/// Most bytes of a template. The longest ones in use have some tens of thousands.
const MOST_BYTES: usize = 1 << 20;

/// Tokens that templates write by their names; empty where the vocabulary has none.
#[derive(Debug, Clone, Default)]
pub(super) struct Marks {
    /// The beginning of a sequence.
    pub begin: String,
    /// Its end.
    pub end: String,
}

/// A conversation of one message of the user, up to where the answer begins. Models that can think first are asked not to
/// (`enable_thinking`). No template learns today's date (`strftime_now`): equal requests would have other prompts tomorrow.
///
/// # Errors
/// The template is no valid Jinja, asks for what is not there, or refuses such a conversation; one line.
pub(super) fn render(template: &str, message: &str, marks: &Marks) -> Result<String, String> {
    if template.len() > MOST_BYTES {
        return Err(format!("the template has {} bytes, at most {MOST_BYTES} are evaluated", template.len()));
    }
    rendered(template, message, marks).map_err(|error| {
        let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
        let line = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
        format!("{}{detail}{line}", error.kind()).replace(['\n', '\r'], " ")
    })
}

/// Training marks what a model answers by a tag that Jinja does not have. It writes its content.
fn without_training_marks(template: &str) -> String {
    let mut text = template.to_owned();
    for (tag, same) in [("generation", "if true"), ("endgeneration", "endif")] {
        for (open, close) in [("{%", "%}"), ("{%-", "%}"), ("{%", "-%}"), ("{%-", "-%}")] {
            text = text.replace(&format!("{open} {tag} {close}"), &format!("{open} {same} {close}"));
        }
    }
    text
}

fn rendered(template: &str, message: &str, marks: &Marks) -> Result<String, Error> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_fuel(Some(MOST_INSTRUCTIONS));
    // Methods of Python's texts, lists and dictionaries.
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |problem: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, problem))
    });
    // Templates ask whether there are tools by `is not none`: what is not given to them is none, not undefined.
    environment.render_str(
        &without_training_marks(template),
        context! {
            messages => [context! { role => "user", content => message }],
            add_generation_prompt => true,
            enable_thinking => false,
            tools => Value::from(()),
            documents => Value::from(()),
            bos_token => &marks.begin,
            eos_token => &marks.end,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks() -> Marks {
        Marks { begin: "<s>".to_owned(), end: "</s>".to_owned() }
    }

    fn render(template: &str) -> Result<String, String> {
        super::render(template, "hello", &marks())
    }

    /// By Python's jinja2 (tests/golden/chat_templates).
    #[test]
    fn templates_are_rendered_as_jinja2_does() {
        let golden = include_str!("../../../tests/golden/chat_templates/templates.json");
        let golden: serde_json::Value = serde_json::from_str(golden).unwrap();
        let (message, marks) = (golden["message"].as_str().unwrap(), marks());
        let cases = golden["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 18);
        for case in cases {
            let rendered = super::render(case["template"].as_str().unwrap(), message, &marks);
            assert_eq!(rendered.as_deref().ok(), case["rendered"].as_str(), "{}: {rendered:?}", case["name"]);
        }
    }

    #[test]
    fn a_template_that_fails_says_why() {
        let fault = |template: &str| render(template).unwrap_err();
        assert!(fault("{% if %}").contains("syntax error"), "{}", fault("{% if %}"));
        let refused = fault("{{ raise_exception('only\nsystem') }}");
        assert!(refused.contains("only system") && refused.contains("(line 1)"), "{refused}");
        assert!(fault("{{ strftime_now('%Y') }}").contains("unknown function"));
        assert!(fault("{{ messages[3]['content'] }}").contains("undefined"));
        assert!(
            fault("{% for i in range(100000) %}{% for j in range(100000) %}{{ j }}{% endfor %}{% endfor %}")
                .contains("fuel")
        );
        let deep = format!("{}1{}", "(".repeat(5_000), ")".repeat(5_000));
        assert!(!fault(&format!("{{{{ {deep} }}}}")).is_empty());
        assert!(fault(&"x".repeat(MOST_BYTES + 1)).contains("1048577 bytes"));
        assert!(fault("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").contains("recursion"));
        assert!(fault("{{ 'x' * 100000000000 }}").len() > 1);
    }
}
