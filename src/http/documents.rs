//! Queries and documents in the forms that peers' clients send: strings, objects with `text`, `content` or named fields.

use serde_json::value::RawValue;

use super::json::{Object, elements, string, word};
use crate::engine::EngineError;

/// A document: a title, which may be empty, and a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Document {
    pub title: String,
    pub text: String,
}

impl Document {
    /// A document that is nothing but a title has it for its text.
    fn settled(self) -> Self {
        if self.text.trim().is_empty() { Self { title: String::new(), text: self.title } } else { self }
    }

    /// Title and text as one, where a protocol has one text.
    pub fn joined(self) -> String {
        if self.title.is_empty() { self.text } else { format!("{}\n{}", self.title, self.text) }
    }
}

/// Fields of an object that hold something else than text.
const IMAGES: [&str; 6] = ["image", "image_url", "images", "audio", "audio_url", "video_url"];

/// Most fields of a document that are joined.
const MOST_FIELDS: usize = 64;

/// The fields of object documents that a body names, each once; `None` where it names none.
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
        // A field that is named again would copy its text again.
        if !distinct.contains(&field) {
            distinct.push(field);
        }
    }
    let fields = distinct;
    Ok(Some(fields).filter(|fields| !fields.is_empty()))
}

/// A list of documents, or a single one.
pub(super) fn list(value: &RawValue, path: &str, rank_fields: Option<&[String]>) -> Result<Vec<Document>, EngineError> {
    match elements(value, path)? {
        None => Ok(vec![document(value, path, rank_fields)?]),
        Some(elements) => {
            let each = elements.into_iter().enumerate();
            each.map(|(index, value)| document(value, &format!("{path}[{index}]"), rank_fields)).collect()
        }
    }
}

/// A string or an object.
pub(super) fn document(value: &RawValue, path: &str, rank_fields: Option<&[String]>) -> Result<Document, EngineError> {
    if let Some(text) = string(value) {
        return Ok(Document { title: String::new(), text });
    }
    if !value.get().starts_with('{') {
        return Err(EngineError::invalid(path, "must be a string or an object with text"));
    }
    match rank_fields {
        Some(fields) => of_fields(value, path, fields),
        None => of_object(value, path),
    }
}

fn of_object(value: &RawValue, path: &str) -> Result<Document, EngineError> {
    let wanted: Vec<&str> = ["title", "text", "content"].into_iter().chain(IMAGES).collect();
    let object = Object::inside(value, path, &wanted)?;
    let title = object.text("title")?.unwrap_or_default();
    let text = match (object.text("text")?, object.raw("content")) {
        (Some(text), _) => text,
        (None, Some(content)) => parts(content, &object.path("content"))?,
        // The picture of a text is one more field that is not read; of a document that is one nothing is known.
        (None, None) => match IMAGES.iter().find(|image| object.has(image)) {
            // Stores export a text that is not there as null.
            _ if !title.trim().is_empty() => String::new(),
            Some(image) => {
                return Err(EngineError::invalid(object.path(image), "is not read here: documents must be text"));
            }
            None => return Err(EngineError::invalid(object.path("text"), "must be set")),
        },
    };
    Ok(Document { title, text }.settled())
}

/// The text of a message: a string, or a list of parts. Beside text other parts are not read.
fn parts(content: &RawValue, path: &str) -> Result<String, EngineError> {
    if let Some(text) = string(content) {
        return Ok(text);
    }
    let Some(parts) = elements(content, path)? else {
        return Err(EngineError::invalid(path, "must be a string or a list of parts"));
    };
    let (mut texts, mut others) = (Vec::with_capacity(parts.len()), None);
    for (index, part) in parts.into_iter().enumerate() {
        let object = Object::inside(part, &format!("{path}[{index}]"), &["type", "text"])?;
        match (object.text("type")?.as_deref(), object.text("text")?) {
            (None | Some("text"), Some(text)) => texts.push(text),
            _ => others = others.or_else(|| Some(object.path("type"))),
        }
    }
    match others.filter(|_| texts.is_empty()) {
        Some(path) => Err(EngineError::invalid(path, "must be text: nothing else is read here")),
        None => Ok(texts.join("\n")),
    }
}

/// The named fields of an object, joined in their order. A field `title` becomes the title.
fn of_fields(value: &RawValue, path: &str, fields: &[String]) -> Result<Document, EngineError> {
    let wanted: Vec<&str> = fields.iter().map(String::as_str).collect();
    let object = Object::inside(value, path, &wanted)?;
    let (mut title, mut texts, mut found) = (String::new(), Vec::new(), false);
    for field in wanted {
        let Some(value) = object.raw(field) else { continue };
        found = true;
        let text = match value.get().as_bytes().first() {
            Some(b'{' | b'[') => return Err(EngineError::invalid(object.path(field), "must be text")),
            Some(b'"') => object.text(field)?.unwrap_or_default(),
            // A number, or true or false, as it is written.
            _ => value.get().to_owned(),
        };
        if field == "title" { title = text } else { texts.push(text) }
    }
    if !found {
        return Err(EngineError::invalid(path, "has none of the fields of rank_fields"));
    }
    Ok(Document { title, text: texts.join("\n") }.settled())
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
        // Fields that are there and blank were said to be none.
        let blank = r#"{"title": "T", "body": "", "tail": ""}"#;
        assert_eq!(read(blank, Some(&["title", "body", "tail"])), Ok((String::new(), "T".into())));
        assert_eq!(read(blank, Some(&["body"])), Ok((String::new(), String::new())));
        for titled in [r#"{"title": "T", "text": " "}"#, r#"{"title": "T", "text": null}"#, r#"{"title": "T"}"#] {
            assert_eq!(read(titled, None), Ok((String::new(), "T".into())), "{titled}");
        }
        // Other fields and parts are not read, the address of a picture neither.
        let parts = r#"{"content": [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "a"}]}"#;
        for pictured in [r#"{"text": "a", "image_url": "http://x"}"#, parts] {
            assert_eq!(read(pictured, None), Ok((String::new(), "a".into())), "{pictured}");
        }
    }

    #[test]
    fn what_is_not_text_is_refused_by_name() {
        let rows = [
            ("5", "documents[0]: must be"),
            ("null", "documents[0]: must be"),
            ("{}", "documents[0].text: must be set"),
            (r#"{"text": 5}"#, "documents[0].text: must be a string"),
            (r#"{"image": "http://x"}"#, "documents[0].image: is not read"),
            (r#"{"content": [{"type": "image_url", "image_url": {}}]}"#, "documents[0].content[0].type: must be text"),
            (r#"{"content": 5}"#, "documents[0].content: must be"),
            (r#""\ud800""#, "documents[0]: must be"),
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
        let error = list(&raw(r#"["a", 5]"#), "documents", None).unwrap_err();
        assert!(error.to_string().starts_with("documents[1]: must be"));
        assert_eq!(Document { title: "T".into(), text: "a".into() }.joined(), "T\na");
    }
}
