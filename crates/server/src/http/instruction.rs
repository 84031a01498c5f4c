//! The instruction of a causal reranker, as clients of other servers send it.

use super::json::Object;
use super::own;
use engine::types::{EngineError, RerankRequest};

/// vLLM's variables for the model's prompt. Only `instruction` is read.
const VARIABLES: &str = "chat_template_kwargs";
const IN_VARIABLES: &str = "chat_template_kwargs.instruction";

/// Names of the instruction, or of the object that holds it.
pub(super) const NAMES: [&str; 3] = ["instruction", "instruct", VARIABLES];

/// The name of the field that is set. The variables take precedence, as in vLLM.
pub(super) fn given(object: &Object<'_, '_>) -> Option<&'static str> {
    let inside = variables(object).and_then(Result::ok).is_some_and(|variables| variables.has("instruction"));
    let named = || NAMES.into_iter().find(|field| *field != VARIABLES && object.has(field));
    if inside { Some(IN_VARIABLES) } else { named() }
}

fn variables<'a>(object: &Object<'a, '_>) -> Option<Result<Object<'a, 'static>, EngineError>> {
    object.raw(VARIABLES).map(|variables| Object::inside(variables, VARIABLES, &["instruction"]))
}

/// The text of the field `name`, which [given] returned.
fn text(object: &Object<'_, '_>, name: &str) -> Result<String, EngineError> {
    let text = match variables(object) {
        Some(variables) if name == IN_VARIABLES => variables?.string("instruction"),
        _ => object.string(name),
    };
    Ok(text?.unwrap_or_default())
}

/// Reads the instruction that a client of a causal reranker sends. Returns its field name, or the name of our own
/// field. Methods with another kind of built-in instruction ignore it: it would replace their instruction.
pub(super) fn read(
    object: &Object<'_, '_>,
    request: &mut RerankRequest,
    warnings: &mut Vec<String>,
) -> Result<&'static str, EngineError> {
    let Some(field) = given(object).filter(|_| !object.has(own::INSTRUCTION)) else { return Ok(own::INSTRUCTION) };
    let method = request.method();
    if method.knows_rerankers() {
        request.prefix.instruction = text(object, field)?;
        return Ok(field);
    }
    let own = own::INSTRUCTION;
    warnings.push(format!(
        "{field} has no effect on {}: only yes-no takes it; {own} is for all methods with an instruction",
        method.name()
    ));
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::methods;

    #[test]
    fn it_is_read_for_a_reranker_alone() {
        for (body, method, taken, name, warned) in [
            (r#"{"instruct": "Find code."}"#, "yes-no", "Find code.", "instruct", false),
            (r#"{"instruction": "Find code."}"#, "yes-no", "Find code.", "instruction", false),
            (r#"{"chat_template_kwargs": {"instruction": "Find code."}}"#, "yes-no", "Find code.", IN_VARIABLES, false),
            (
                r#"{"instruction": "A.", "chat_template_kwargs": {"instruction": "B."}}"#,
                "yes-no",
                "B.",
                IN_VARIABLES,
                false,
            ),
            (r#"{"instruction": "A.", "chat_template_kwargs": {"fps": 2}}"#, "yes-no", "A.", "instruction", false),
            (r#"{"chat_template_kwargs": {"enable_thinking": false}}"#, "yes-no", "", own::INSTRUCTION, false),
            (r#"{"chat_template_kwargs": {"instruction": "Find code."}}"#, "moi", "", own::INSTRUCTION, true),
            (r#"{"chat_template_kwargs": [], "instruct": 5}"#, "moi", "", own::INSTRUCTION, true),
            (r#"{"instruct": "Find code."}"#, "moi", "", own::INSTRUCTION, true),
            (r#"{"instruct": null}"#, "moi", "", own::INSTRUCTION, false),
            (r#"{"instruct": "Find code.", "rerankd_instruction": "Own."}"#, "yes-no", "", own::INSTRUCTION, false),
        ] {
            let object = Object::read(body, "", &[NAMES[0], NAMES[1], NAMES[2], own::INSTRUCTION]).unwrap();
            let mut request = RerankRequest { method: methods::find(method), ..RerankRequest::default() };
            let mut warnings = Vec::new();
            assert_eq!(read(&object, &mut request, &mut warnings).unwrap(), name, "{body}");
            assert_eq!((&*request.prefix.instruction, !warnings.is_empty()), (taken, warned), "{body}");
        }
        let object = Object::read(r#"{"chat_template_kwargs": {"instruction": 1}}"#, "", &NAMES).unwrap();
        let faulty = text(&object, given(&object).unwrap()).unwrap_err();
        assert_eq!(faulty.to_string(), "chat_template_kwargs.instruction: must be a string");
    }
}
