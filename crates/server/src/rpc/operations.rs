//! The methods of the server, from the descriptors of the protocol.

use std::collections::HashMap;
use std::sync::Arc;

use prost::Message;
use prost_types::{FileDescriptorSet, MethodDescriptorProto};

use prefix_scheduler::call::Operation;

/// The methods by the path of their requests, without health and reflection.
#[derive(Debug)]
pub(super) struct Operations {
    known: HashMap<String, Arc<Operation>>,
    other: Arc<Operation>,
}

impl Operations {
    /// Reads encoded descriptors.
    ///
    /// # Errors
    /// They are not a `FileDescriptorSet`.
    pub fn read(descriptors: &[u8]) -> Result<Self, prost::DecodeError> {
        let files = FileDescriptorSet::decode(descriptors)?;
        let mut known = HashMap::new();
        for file in files.file {
            for service in &file.service {
                let name = format!("{}.{}", file.package(), service.name());
                for method in &service.method {
                    let operation =
                        Operation { kind: kind(method), service: name.clone(), method: method.name().to_owned() };
                    known.insert(format!("/{name}/{}", method.name()), Arc::new(operation));
                }
            }
        }
        let unknown = || "unknown".to_owned();
        let other = Operation { kind: "unary", service: unknown(), method: unknown() };
        Ok(Self { known, other: Arc::new(other) })
    }

    /// The method of a path; `None` for health and reflection. Unknown paths share the method `unknown`, because the
    /// caller chooses their text.
    pub fn of(&self, path: &str) -> Option<Arc<Operation>> {
        if path.starts_with("/grpc.") {
            return None;
        }
        Some(Arc::clone(self.known.get(path).unwrap_or(&self.other)))
    }

    /// Every method.
    pub fn iter(&self) -> impl Iterator<Item = &Operation> {
        self.known.values().map(AsRef::as_ref)
    }
}

fn kind(method: &MethodDescriptorProto) -> &'static str {
    match (method.client_streaming(), method.server_streaming()) {
        (false, false) => "unary",
        (true, false) => "client_stream",
        (false, true) => "server_stream",
        (true, true) => "bidi_stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_and_their_kinds_are_those_of_the_protocol() {
        let operations = Operations::read(protocol::DESCRIPTORS).unwrap();
        let of = |path: &str| operations.of(path).map(|operation| (operation.kind, operation.method.clone()));
        assert_eq!(of("/rerankd.v1.RerankService/Rerank"), Some(("unary", "Rerank".to_owned())));
        assert_eq!(of("/rerankd.v1.RerankService/WatchRerank"), Some(("server_stream", "WatchRerank".to_owned())));
        let stream = of("/rerankd.v1.UtilityService/MeasureUtilityStream");
        assert_eq!(stream, Some(("bidi_stream", "MeasureUtilityStream".to_owned())));
        assert_eq!(of("/anything/else"), Some(("unary", "unknown".to_owned())));
        assert_eq!(of("/grpc.health.v1.Health/Check"), None);
        assert!(operations.iter().count() > 10);
    }

    #[test]
    fn damaged_descriptors_are_an_error() {
        assert!(Operations::read(&[0x0a, 0xff]).is_err());
    }
}
