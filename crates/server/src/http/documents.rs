//! Queries and documents of all clients: strings, objects with `text`, `content` or named fields.
//!
//! Bad input affects one document, not the list: a document without text becomes an empty one, which the engine ranks
//! last. docs/reference/input.md is the table of these rules.

use serde_json::value::RawValue;

use super::json::{Object, Text, elements, text, word};
use engine::rerank::places_of;
use engine::types::EngineError;
use rag_metrics::{MOST_REPEATED, clipped};

/// A document: a title, which may be empty, and a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Document {
    pub title: String,
    pub text: String,
    /// True if an unpaired surrogate was replaced in title or text.
    pub repaired: bool,
    /// True if no field with a text was found.
    pub missing: bool,
}

/// A document, or the reason why a value has no text.
type Read = Result<Document, EngineError>;

impl Document {
    /// Uses the title as the text if there is no other text.
    fn with_title_as_text(self) -> Self {
        if self.text.trim().is_empty() { Self { title: String::new(), text: self.title, ..self } } else { self }
    }

    /// Title and text joined, for protocols with one text per document.
    pub fn joined(self) -> String {
        if self.title.is_empty() { self.text } else { format!("{}\n{}", self.title, self.text) }
    }
}

impl From<Text> for Document {
    fn from(Text { text, repaired }: Text) -> Self {
        Self { text, repaired, ..Self::default() }
    }
}

/// Names of the text field of a document. The last one is LangChain's.
const TEXTS: [&str; 3] = ["text", "content", "page_content"];

/// Fields of an object that hold media other than text.
const IMAGES: [&str; 6] = ["image", "image_url", "images", "audio", "audio_url", "video_url"];

/// Most fields of a document that are joined.
const MOST_FIELDS: usize = 64;

/// The fields of object documents that a body names, each once; `None` if it names none.
pub(super) fn rank_fields(object: &Object<'_, '_>) -> Result<Option<Vec<String>>, EngineError> {
    let Some(value) = object.raw("rank_fields") else { return Ok(None) };
    let refused = || EngineError::invalid("rank_fields", "must be a list of strings");
    let fields = elements(value, "rank_fields")?.ok_or_else(refused)?;
    if fields.len() > MOST_FIELDS {
        let problem = format!("{} given, at most {MOST_FIELDS} allowed", fields.len());
        return Err(EngineError::invalid("rank_fields", problem));
    }
    let mut distinct: Vec<String> = Vec::new();
    for field in fields {
        let field = word(field, "rank_fields")?;
        // A repeated name would copy the field's text again.
        if !distinct.contains(&field) {
            distinct.push(field);
        }
    }
    let fields = distinct;
    Ok(Some(fields).filter(|fields| !fields.is_empty()))
}

/// Warnings about documents without a readable field, and about texts in which an unpaired surrogate was replaced.
pub(super) fn warnings(list: &str, documents: &[Document]) -> impl Iterator<Item = String> {
    let of = |is: fn(&Document) -> bool| {
        let places: Vec<usize> = (0..documents.len()).filter(|index| is(&documents[*index])).collect();
        (!places.is_empty()).then(|| places_of(list, &places))
    };
    let missing = of(|document| document.missing).map(|places| format!("{places}: no text field was found"));
    missing.into_iter().chain(of(|document| document.repaired).map(|places| mended(&places)))
}

/// The warning about a replaced surrogate in the text `name`.
pub(super) fn mended(name: &str) -> String {
    format!("{name}: half a surrogate pair was read as U+FFFD")
}

/// A list of documents, or a single one. A document without a text field is empty. If no document has a text, the body
/// has another format, and the error names the missing field.
pub(super) fn list(value: &RawValue, path: &str, rank_fields: Option<&[String]>) -> Result<Vec<Document>, EngineError> {
    let Some(elements) = elements(value, path)? else { return Ok(vec![document(value, path, rank_fields)?]) };
    let (mut documents, mut missing) = (Vec::with_capacity(elements.len()), None);
    for (index, value) in elements.into_iter().enumerate() {
        match read(value, &format!("{path}[{index}]"), rank_fields)? {
            Ok(document) => documents.push(document),
            Err(problem) => {
                missing.get_or_insert(problem);
                documents.push(Document { missing: true, ..Document::default() });
            }
        }
    }
    let is_blank = |document: &Document| document.text.trim_start_matches('\u{feff}').trim().is_empty();
    match missing.filter(|_| documents.iter().all(is_blank)) {
        Some(problem) => Err(problem),
        None => Ok(documents),
    }
}

/// A string or an object.
pub(super) fn document(value: &RawValue, path: &str, rank_fields: Option<&[String]>) -> Result<Document, EngineError> {
    read(value, path, rank_fields)?
}

/// A string or an object, if it has a text.
///
/// # Errors
/// For a list, and for a list or an object instead of a text.
fn read(value: &RawValue, path: &str, rank_fields: Option<&[String]>) -> Result<Read, EngineError> {
    if let Some(text) = text(value) {
        return Ok(Ok(text.into()));
    }
    if !value.get().starts_with('{') {
        return Err(EngineError::invalid(path, "must be a string or an object with text"));
    }
    match rank_fields {
        Some(fields) => of_fields(value, path, fields),
        None => of_object(value, path),
    }
}

fn of_object(value: &RawValue, path: &str) -> Result<Read, EngineError> {
    let wanted: Vec<&str> = ["title"].into_iter().chain(TEXTS).chain(IMAGES).collect();
    let object = Object::inside(value, path, &wanted)?;
    let title = object.text("title")?.unwrap_or_default();
    let text = match TEXTS.into_iter().find(|name| object.has(name)) {
        Some("text") => object.text("text")?.unwrap_or_default(),
        Some(name) => match object.raw(name).map(|value| parts(value, &object.path(name))).transpose()? {
            Some(Err(missing)) if title.text.trim().is_empty() => return Ok(Err(missing)),
            parts => parts.and_then(Result::ok).unwrap_or_default(),
        },
        None if object.names("title") || TEXTS.iter().any(|name| object.names(name)) => Text::default(),
        None => {
            let (field, problem) = match IMAGES.into_iter().find(|image| object.has(image)) {
                Some(image) => (image, "is not supported: documents must be text"),
                None => ("text", "must be set"),
            };
            return Ok(Err(EngineError::invalid(object.path(field), problem)));
        }
    };
    let repaired = title.repaired || text.repaired;
    Ok(Ok(Document { title: title.text, text: text.text, repaired, missing: false }.with_title_as_text()))
}

/// The text of a message: a string, or a list of parts. Parts other than text are ignored if there is text.
fn parts(content: &RawValue, path: &str) -> Result<Result<Text, EngineError>, EngineError> {
    if let Some(text) = text(content) {
        return Ok(Ok(text));
    }
    let Some(parts) = elements(content, path)? else {
        return Err(EngineError::invalid(path, "must be a string or a list of parts"));
    };
    let (mut texts, mut repaired, mut others) = (Vec::with_capacity(parts.len()), false, None);
    for (index, part) in parts.into_iter().enumerate() {
        let found = match text(part) {
            Some(text) => Some(text),
            None => {
                let object = Object::inside(part, &format!("{path}[{index}]"), &["type", "text"])?;
                let kind = object.string("type")?;
                let text = object.text("text")?;
                let is_text = kind.is_none_or(|kind| kind.eq_ignore_ascii_case("text"));
                if !is_text || text.is_none() && !object.names("text") {
                    others = others.or_else(|| Some(object.path("type")));
                    continue;
                }
                text
            }
        };
        let found = found.unwrap_or_default();
        repaired |= found.repaired;
        texts.push(found.text);
    }
    match others.filter(|_| texts.is_empty()) {
        Some(path) => Ok(Err(EngineError::invalid(path, "must be text: no other part is supported"))),
        None => Ok(Ok(Text { text: texts.join("\n"), repaired })),
    }
}

/// The named fields of an object, joined in their order. A field `title` becomes the title.
fn of_fields(value: &RawValue, path: &str, fields: &[String]) -> Result<Read, EngineError> {
    let wanted: Vec<&str> = fields.iter().map(String::as_str).collect();
    let object = Object::inside(value, path, &wanted)?;
    let (mut title, mut texts, mut repaired) = (String::new(), Vec::new(), false);
    for field in wanted.iter().copied() {
        let Some(value) = object.raw(field) else { continue };
        let refused = || EngineError::invalid(object.path(&clipped(field, MOST_REPEATED / 2)), "must be text");
        let read = text(value).ok_or_else(refused)?;
        repaired |= read.repaired;
        if field == "title" { title = read.text } else { texts.push(read.text) }
    }
    if !wanted.iter().any(|field| object.names(field)) {
        return Ok(Err(EngineError::invalid(path, "has none of the fields of rank_fields")));
    }
    Ok(Ok(Document { title, text: texts.join("\n"), repaired, missing: false }.with_title_as_text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    fn read(json: &str, fields: Option<&[&str]>) -> Result<(String, String), String> {
        let fields: Option<Vec<String>> = fields.map(|fields| fields.iter().map(|each| (*each).to_owned()).collect());
        let read = document(&raw(json), "documents[0]", fields.as_deref());
        read.map(|document| (document.title, document.text)).map_err(|error| error.to_string())
    }

    #[test]
    fn documents_of_every_peer() {
        let plain = |text: &str| Ok((String::new(), text.to_owned()));
        assert_eq!(read(r#""a \u00e9""#, None), plain("a é"));
        assert_eq!(read(r#"{"text": "a", "id": 7}"#, None), plain("a"));
        assert_eq!(read(r#"{"title": "T", "text": "a"}"#, None), Ok(("T".into(), "a".into())));
        assert_eq!(read(r#"{"content": "a"}"#, None), plain("a"));
        let parts = r#"{"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}"#;
        assert_eq!(read(parts, None), plain("a\nb"));
    }

    #[test]
    fn rank_fields_are_joined_in_their_order() {
        let document = r#"{"title": "T", "body": "b", "year": 1871, "other": "o", "list": []}"#;
        assert_eq!(read(document, Some(&["year", "title", "body"])), Ok(("T".into(), "1871\nb".into())));
        assert_eq!(read(document, Some(&["title"])), Ok((String::new(), "T".into())));
        assert_eq!(read(document, Some(&["gone", "body"])), Ok((String::new(), "b".into())));
        assert_eq!(read(document, Some(&["gone"])), Err("documents[0]: has none of the fields of rank_fields".into()));
        assert_eq!(read(document, Some(&["list"])), Err("documents[0].list: must be text".into()));
        // Present but blank fields are not missing.
        let blank = r#"{"title": "T", "body": "", "tail": ""}"#;
        assert_eq!(read(blank, Some(&["title", "body", "tail"])), Ok((String::new(), "T".into())));
        assert_eq!(read(blank, Some(&["body"])), Ok((String::new(), String::new())));
        for titled in [r#"{"title": "T", "text": " "}"#, r#"{"title": "T", "text": null}"#, r#"{"title": "T"}"#] {
            assert_eq!(read(titled, None), Ok((String::new(), "T".into())), "{titled}");
        }
        // Other fields and parts are ignored, such as the URL of an image.
        let parts = r#"{"content": [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "a"}]}"#;
        for pictured in [r#"{"text": "a", "image_url": "http://x"}"#, parts] {
            assert_eq!(read(pictured, None), Ok((String::new(), "a".into())), "{pictured}");
        }
    }

    #[test]
    fn non_text_is_refused_by_name() {
        let rows = [
            ("[5]", "documents[0]: must be"),
            ("{}", "documents[0].text: must be set"),
            (r#"{"body": "a"}"#, "documents[0].text: must be set"),
            (r#"{"text": ["a"]}"#, "documents[0].text: must be a string"),
            (r#"{"image": "http://x"}"#, "documents[0].image: is not supported"),
            (r#"{"content": [{"type": "image_url", "image_url": {}}]}"#, "documents[0].content[0].type: must be text"),
            (r#"{"content": {}}"#, "documents[0].content: must be"),
        ];
        for (json, message) in rows {
            let error = read(json, None).unwrap_err();
            assert!(error.starts_with(message), "{json}: {error}");
        }
    }

    #[test]
    fn a_single_document_is_a_list_of_one() {
        assert_eq!(list(&raw(r#""a""#), "documents", None).unwrap().len(), 1);
        assert_eq!(list(&raw(r#"["a", {"text": "b"}]"#), "documents", None).unwrap()[1].text, "b");
        let error = list(&raw(r#"["a", ["b"]]"#), "documents", None).unwrap_err();
        assert!(error.to_string().starts_with("documents[1]: must be"));
        assert_eq!(Document { title: "T".into(), text: "a".into(), ..Document::default() }.joined(), "T\na");
    }

    /// One of these must not fail the whole list.
    #[test]
    fn a_document_without_text_is_an_empty_one() {
        let rows = [
            ("null", ""),
            (r#"{"text": null}"#, ""),
            (r#"{"content": null}"#, ""),
            (r#"{"content": []}"#, ""),
            (r#"{"content": [{"type": "text", "text": null}]}"#, ""),
            (r#"{"title": null}"#, ""),
            ("{}", ""),
            (r#"{"image": "http://x"}"#, ""),
            (r#"{"content": [{"type": "image_url", "image_url": {}}]}"#, ""),
            ("2021", "2021"),
            ("false", "false"),
            (r#"{"text": 1.50}"#, "1.50"),
            (r#"{"page_content": "a", "metadata": {}}"#, "a"),
            (r#"{"content": ["a", {"text": "b"}]}"#, "a\nb"),
            (r#""cut \ud83d""#, "cut \u{fffd}"),
            (r#"{"\udc00": 1, "text": "\udc00"}"#, "\u{fffd}"),
        ];
        for (json, text) in rows {
            let documents = list(&raw(&format!(r#"["a", {json}]"#)), "documents", None).unwrap();
            assert_eq!(documents[1].text, text, "{json}");
            let said: Vec<String> = warnings("documents", &documents).collect();
            let repaired =
                said.iter().any(|warning| warning == "documents[1]: half a surrogate pair was read as U+FFFD");
            let missing = said.iter().any(|warning| warning == "documents[1]: no text field was found");
            let lacks = json == "{}" || json.contains("image");
            assert_eq!((repaired, missing), (text.contains('\u{fffd}'), lacks), "{json}");
        }
        // If no document has a text, the body has another format.
        let error = list(&raw(r#"[{"body": "a"}, {}]"#), "documents", None).unwrap_err();
        assert_eq!(error.to_string(), "documents[0].text: must be set");
        for others in [r"[null, {}]", r#"[null, {"body": "a"}]"#, r#"["\ufeff", {"body": "a"}, {"text": " "}]"#] {
            let error = list(&raw(others), "documents", None).unwrap_err();
            assert_eq!(error.to_string(), "documents[1].text: must be set", "{others}");
        }
        assert_eq!(list(&raw(r#"[null, {"text": ""}]"#), "documents", None).unwrap().len(), 2);
        let fields = ["body".to_owned()];
        let documents =
            list(&raw(r#"[{"body": "a"}, {"other": 1}, {"body": null}]"#), "documents", Some(&fields)).unwrap();
        let said: Vec<String> = warnings("documents", &documents).collect();
        assert_eq!((documents.len(), said), (3, vec!["documents[1]: no text field was found".to_owned()]));
    }
}
