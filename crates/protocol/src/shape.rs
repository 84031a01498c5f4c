//! Which fields of a message hold messages, and which messages hold lists, read from the protocol's descriptors.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};

/// One message of the protocol.
#[derive(Debug, Default)]
pub(super) struct Shape {
    /// Numbers of the fields that are messages, and where their shapes are; entries of maps are messages, too.
    messages: Vec<(u64, usize)>,
    /// Whether this message or one in it has a repeated field.
    pub holds_lists: bool,
    /// Whether this is the entry of a map.
    pub is_entry: bool,
}

impl Shape {
    /// The shape of a message by its full name, as in `rerankd.v1.RerankRequest`.
    pub fn of(name: &str) -> Option<&'static Self> {
        SHAPES.0.get(name).and_then(|at| SHAPES.1.get(*at))
    }

    /// The shape of the message that the field of this number holds, if it holds one.
    pub fn field(&self, number: u64) -> Option<&'static Self> {
        let (_, at) = self.messages.iter().find(|(known, _)| *known == number)?;
        SHAPES.1.get(*at)
    }
}

/// Places by full name, and all shapes.
static SHAPES: LazyLock<(BTreeMap<String, usize>, Vec<Shape>)> = LazyLock::new(|| {
    // The build wrote these bytes; a test reads them.
    let files = FileDescriptorSet::decode(super::DESCRIPTORS).unwrap_or_default().file;
    let mut messages = Vec::new();
    for file in &files {
        collect(file.package(), &file.message_type, &mut messages);
    }
    let places: BTreeMap<String, usize> =
        messages.iter().enumerate().map(|(at, (name, _))| (name.clone(), at)).collect();
    let mut shapes: Vec<Shape> = messages.iter().map(|(_, message)| shape(message, &places)).collect();
    // A message holds the lists of the messages in it: until nothing changes, because they come in any order.
    loop {
        let holds =
            |shape: &Shape| shape.holds_lists || shape.messages.iter().any(|(_, inner)| shapes[*inner].holds_lists);
        let found: Vec<bool> = shapes.iter().map(holds).collect();
        if shapes.iter().zip(&found).all(|(shape, found)| shape.holds_lists == *found) {
            return (places, shapes);
        }
        for (shape, found) in shapes.iter_mut().zip(found) {
            shape.holds_lists = found;
        }
    }
});

fn collect<'a>(within: &str, messages: &'a [DescriptorProto], all: &mut Vec<(String, &'a DescriptorProto)>) {
    for message in messages {
        let name = format!("{within}.{}", message.name());
        collect(&name, &message.nested_type, all);
        all.push((name, message));
    }
}

fn shape(message: &DescriptorProto, places: &BTreeMap<String, usize>) -> Shape {
    let is_entry = message.options.as_ref().is_some_and(prost_types::MessageOptions::map_entry);
    let mut shape = Shape { is_entry, ..Shape::default() };
    for field in &message.field {
        shape.holds_lists |= field.label() == Label::Repeated;
        if let (Type::Message, Some(at)) = (field.r#type(), places.get(field.type_name().trim_start_matches('.'))) {
            shape.messages.push((u64::from(field.number().unsigned_abs()), *at));
        }
    }
    shape
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request without a shape would be counted on its outermost level only.
    #[test]
    fn every_request_of_the_protocol_has_a_shape() {
        let protocol = FileDescriptorSet::decode(super::super::DESCRIPTORS).unwrap();
        let services = protocol.file.iter().flat_map(|file| &file.service);
        let methods: Vec<_> = services.flat_map(|service| &service.method).collect();
        assert!(methods.len() > 20);
        for method in methods {
            let name = method.input_type().trim_start_matches('.');
            assert!(Shape::of(name).is_some(), "{name}");
        }
    }

    #[test]
    fn messages_and_lists_are_found() {
        let request = Shape::of("rerankd.v1.RerankRequest").unwrap();
        assert!(request.holds_lists && request.field(1).is_none());
        let passage = request.field(2).unwrap();
        assert!(!passage.holds_lists && passage.messages.is_empty());
        let fusion = request.field(11).unwrap();
        let background = fusion.field(4).unwrap();
        assert!(fusion.holds_lists && background.holds_lists);
        let word = background.field(2).unwrap();
        assert!(!word.holds_lists && word.messages.is_empty() && word.is_entry && !background.is_entry);
        assert!(Shape::of("rerankd.v1.Nothing").is_none());
    }
}
