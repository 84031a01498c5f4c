//! Evaluates the chat template of a GGUF file. Templates are Jinja programs that use functions of the transformers
//! library.

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value, context};

/// Limit on a template's work: instructions, visited items, and bytes in units of 64. It bounds time and memory. A
/// template takes some hundred units per message.
const MOST_WORK: u64 = 100_000;

/// Most bytes of a template. The longest ones in use have some tens of thousands.
pub(super) const MOST_BYTES: usize = 1 << 16;

/// Most bytes that a template may add around a message. They are part of every prompt.
const MOST_WRITTEN: usize = 1 << 14;

/// Stack of the evaluating thread. The parser, the compiler and the code that frees the tree recurse for every sign
/// of a chain such as `---1`. A template of the maximum size must not end the process.
pub(super) const STACK_BYTES: usize = 128 << 20;

/// The constant date for templates: with the real one, equal requests would have different prompts on different
/// days. It is the default date in the templates of Llama 3.
const TODAY: [(&str, &str); 16] = [
    ("%Y", "2024"),
    ("%y", "24"),
    ("%m", "07"),
    ("%d", "26"),
    ("%B", "July"),
    ("%b", "Jul"),
    ("%A", "Friday"),
    ("%a", "Fri"),
    ("%-d", "26"),
    ("%e", "26"),
    ("%j", "208"),
    ("%I", "12"),
    ("%p", "AM"),
    ("%H", "00"),
    ("%M", "00"),
    ("%S", "00"),
];

/// Special tokens that templates write by name; empty if the vocabulary lacks one.
#[derive(Debug, Clone, Default)]
pub(super) struct Marks {
    /// The beginning of a sequence.
    pub begin: String,
    /// Its end.
    pub end: String,
}

/// Renders a conversation with one user message, up to the start of the answer. Models that can think first are
/// asked not to (`enable_thinking`).
///
/// # Errors
/// One line: the template is not valid Jinja, needs a missing variable, or refuses such a conversation.
pub(super) fn render(template: &str, message: &str, marks: &Marks) -> Result<String, String> {
    if template.len() > MOST_BYTES {
        return Err(format!("the template has {} bytes, at most {MOST_BYTES} are evaluated", template.len()));
    }
    let evaluated = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("chat-template".into()).stack_size(STACK_BYTES);
        let thread =
            thread.spawn_scoped(scope, || rendered(template, message, marks).map_err(|error| described(&error)));
        thread.map(std::thread::ScopedJoinHandle::join)
    });
    match evaluated {
        Ok(Ok(Ok(text))) if text.len() > MOST_WRITTEN => {
            Err(format!("it writes {} bytes around a message, at most {MOST_WRITTEN} are used", text.len()))
        }
        Ok(Ok(rendered)) => rendered,
        Ok(Err(_)) => Err("its evaluation panicked".to_owned()),
        Err(error) => Err(format!("no thread to evaluate it: {error}")),
    }
}

fn described(error: &Error) -> String {
    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    let line = error.line().map(|line| format!(" (line {line})")).unwrap_or_default();
    format!("{}{detail}{line}", error.kind()).replace(['\n', '\r'], " ")
}

/// Removes the tag that marks a model's answers for training, which Jinja does not know, and keeps its content.
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
    environment.set_fuel(Some(MOST_WORK));
    // Methods of Python's strings, lists and dictionaries.
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_function("raise_exception", |problem: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, problem))
    });
    environment.add_function("strftime_now", |format: String| -> Result<String, Error> {
        let text = TODAY.iter().fold(format, |text, (directive, value)| text.replace(directive, value));
        let unknown =
            || Error::new(ErrorKind::InvalidOperation, format!("strftime_now does not support the format {text:?}"));
        if text.contains('%') { Err(unknown()) } else { Ok(text) }
    });
    // None cannot be iterated over here, unlike in jinja2. Templates test for tools in this way.
    environment.add_test("iterable", |value: &Value| !value.is_none() && value.try_iter().is_ok());
    // Templates test for tools by `is not none`, so an unset variable is none instead of undefined.
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

    /// Results of Python's jinja2 (tests/golden/chat_templates).
    #[test]
    fn templates_are_rendered_as_jinja2_does() {
        let golden = include_str!("../../../../tests/golden/chat_templates/templates.json");
        let golden: serde_json::Value = serde_json::from_str(golden).unwrap();
        let (message, marks) = (golden["message"].as_str().unwrap(), marks());
        let cases = golden["cases"].as_array().unwrap();
        assert_eq!(cases.len(), 20);
        for case in cases {
            let rendered = super::render(case["template"].as_str().unwrap(), message, &marks);
            assert_eq!(rendered.as_deref().ok(), case["rendered"].as_str(), "{}: {rendered:?}", case["name"]);
        }
    }

    #[test]
    fn a_failing_template_has_a_reason() {
        let fault = |template: &str| render(template).unwrap_err();
        assert!(fault("{% if %}").contains("syntax error"), "{}", fault("{% if %}"));
        let refused = fault("{{ raise_exception('only\nsystem') }}");
        assert!(refused.contains("only system") && refused.contains("(line 1)"), "{refused}");
        assert!(fault("{{ strftime_now('%c') }}").contains("does not support the format"));
        assert!(fault("{{ messages[3]['content'] }}").contains("undefined"));
        assert!(
            fault("{% for i in range(100000) %}{% for j in range(100000) %}{{ j }}{% endfor %}{% endfor %}")
                .contains("fuel")
        );
        assert!(
            fault("{% for i in range(3000) %}system{% endfor %}{{ messages[0].content }}")
                .contains("writes 18005 bytes")
        );
        assert!(fault(&"x".repeat(MOST_BYTES + 1)).contains("65537 bytes"));
        assert!(fault("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}").contains("recursion"));
        assert!(fault("{{ 'x' * 100000000000 }}").len() > 1);
    }
    /// Ten such chains overflow the stack of an ordinary thread, which ends the process; 64 MiB hold all of them.
    #[test]
    fn a_chain_as_long_as_a_template_may_be_does_not_end_the_process() {
        let chain = |before: &str, unit: &str, after: &str| {
            let room = MOST_BYTES - "{{  }}".len() - before.len() - after.len();
            let middle = unit.repeat(room / unit.len());
            let _ = render(&format!("{{{{ {before}{middle}{after} }}}}"));
        };
        for unit in ["-", "not ", "(", "[", "{1:", "1 if 1 else "] {
            chain("", unit, "1");
        }
        for unit in [".a", "|trim", "+1", "[0]", "()", " is string", "~1", " and 1", "**1"] {
            chain("messages", unit, "");
        }
        let blocks = "{% if 1 %}".repeat(MOST_BYTES / "{% if 1 %}".len());
        assert!(render(&blocks).is_err());
    }
}
