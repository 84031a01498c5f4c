//! The instruction of a causal reranker, as clients of other servers send it.

use super::json::Object;
use super::own;
use crate::engine::EngineError;
use crate::engine::rerank::RerankRequest;

/// What they call it.
pub(super) const NAMES: [&str; 2] = ["instruction", "instruct"];

/// Takes over the instruction that a client of a causal reranker sends. Returns its name, or that of our own field. Methods with a
/// built-in instruction of another kind do not take it: it would be read in the place of theirs.
pub(super) fn read(
    object: &Object<'_, '_>,
    request: &mut RerankRequest,
    warnings: &mut Vec<String>,
) -> Result<&'static str, EngineError> {
    let given = NAMES.into_iter().find(|field| object.has(field));
    let Some(field) = given.filter(|_| !object.has(own::INSTRUCTION)) else { return Ok(own::INSTRUCTION) };
    let method = request.method();
    if method.knows_rerankers() {
        request.opening.instruction = object.text(field)?.unwrap_or_default();
        return Ok(field);
    }
    let own = own::INSTRUCTION;
    warnings.push(format!(
        "{field} has no effect on {}: it is for yes-no, and {own} for every method that takes one",
        method.name()
    ));
    Ok(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::methods;

    #[test]
    fn it_is_read_for_a_reranker_alone() {
        for (body, method, taken, name, warned) in [
            (r#"{"instruct": "Find code."}"#, "yes-no", "Find code.", "instruct", false),
            (r#"{"instruction": "Find code."}"#, "yes-no", "Find code.", "instruction", false),
            (r#"{"instruct": "Find code."}"#, "moi", "", own::INSTRUCTION, true),
            (r#"{"instruct": null}"#, "moi", "", own::INSTRUCTION, false),
            (r#"{"instruct": "Find code.", "rerankd_instruction": "Own."}"#, "yes-no", "", own::INSTRUCTION, false),
        ] {
            let object = Object::read(body, "", &[NAMES[0], NAMES[1], own::INSTRUCTION]).unwrap();
            let mut request = RerankRequest { method: methods::find(method), ..RerankRequest::default() };
            let mut warnings = Vec::new();
            assert_eq!(read(&object, &mut request, &mut warnings).unwrap(), name, "{body}");
            assert_eq!((&*request.opening.instruction, !warnings.is_empty()), (taken, warned), "{body}");
        }
    }
}
