//! Statuses are small: every string of every request may be long. The requests are made of the descriptors, so that a new field is
//! tried without a line here.

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Status};

use crate::common;
use common::Scripted;
use rerankd::rpc::DESCRIPTORS;

/// Deepest message in a message. The task of an evaluation stream is three deep.
const DEPTH: usize = 4;

/// Bytes as they are.
#[derive(Debug, Clone, Copy, Default)]
struct Raw;

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(buffer, &item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = usize;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<usize>, Status> {
        let size = bytes::Buf::remaining(buffer);
        bytes::Buf::advance(buffer, size);
        Ok(Some(size))
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = usize;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

struct Messages(Vec<(String, DescriptorProto)>);

impl Messages {
    fn get(&self, name: &str) -> &DescriptorProto {
        &self.0.iter().find(|(full, _)| full == name).unwrap_or_else(|| panic!("no message {name}")).1
    }

    /// The message with short strings, and as many of them with one long string each.
    fn made(&self, name: &str, long: &str, depth: usize) -> (Vec<u8>, Vec<(String, Vec<u8>)>) {
        let field = |number: i32, content: &[u8]| {
            let mut bytes = Vec::new();
            prost::encoding::bytes::encode(u32::try_from(number).unwrap(), &content.to_vec(), &mut bytes);
            bytes
        };
        let (mut parts, mut longs) = (Vec::new(), Vec::new());
        for one in &self.get(name).field {
            // Of alternatives the last one stands.
            let (short, variants) = match one.r#type() {
                Type::String => (b"a".to_vec(), vec![(String::new(), long.as_bytes().to_vec())]),
                Type::Message if depth < DEPTH => self.made(one.type_name().trim_start_matches('.'), long, depth + 1),
                _ => continue,
            };
            let place = parts.len();
            let repeated = one.label() == Label::Repeated;
            let content = field(one.number(), &short);
            parts.push(if repeated && one.r#type() == Type::String { Vec::new() } else { content });
            let named = |inner: String| format!("{}.{inner}", one.name());
            longs.extend(variants.into_iter().map(|(inner, bytes)| (place, named(inner), field(one.number(), &bytes))));
        }
        let with = |longer: Option<(usize, &Vec<u8>)>| -> Vec<u8> {
            let part = |(place, part): (usize, &Vec<u8>)| match longer {
                Some((at, bytes)) if at == place => bytes.clone(),
                _ => part.clone(),
            };
            parts.iter().enumerate().flat_map(part).collect()
        };
        let variants = longs.iter().map(|(place, name, bytes)| (name.clone(), with(Some((*place, bytes)))));
        (with(None), variants.collect())
    }
}

#[tokio::test]
async fn no_status_repeats_what_a_caller_sent() {
    let set = FileDescriptorSet::decode(DESCRIPTORS).unwrap();
    let named = set.file.iter().flat_map(|file| {
        file.message_type.iter().map(|message| (format!("{}.{}", file.package(), message.name()), message.clone()))
    });
    let messages = Messages(named.collect());
    let limits = rerankd::engine::Limits { query_bytes: 1 << 20, passage_bytes: 1 << 20, ..common::LIMITS };
    let (engine, observed, queue_length) = Scripted { limits, ..Scripted::default() }.engine().await;
    let (engine, _) = common::with_scripted_judge(&engine, std::time::Duration::ZERO);
    let server = common::serve(engine, observed, queue_length).await;
    let mut tried = 0;
    for letters in ["x".repeat(300), "\u{7f}".repeat(300), "x".repeat(20_000)] {
        for file in set.file.iter().filter(|file| file.package().ends_with("v1")) {
            for (service, method) in
                file.service.iter().flat_map(|service| service.method.iter().map(move |method| (service, method)))
            {
                let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                let (_, variants) = messages.made(method.input_type().trim_start_matches('.'), &letters, 0);
                for (name, bytes) in variants {
                    let mut client = tonic::client::Grpc::new(server.channel().await);
                    client.ready().await.unwrap();
                    let asked = Request::new(tokio_stream::iter([bytes]));
                    let path = path.parse().unwrap();
                    let answer = client.streaming(asked, path, Raw).await;
                    let status = match answer {
                        Err(status) => Some(status),
                        Ok(answer) => {
                            let mut answers = answer.into_inner();
                            loop {
                                match answers.message().await {
                                    Ok(None) => break None,
                                    // An answer in a stream may be an error, too, but of many strings most are no fault.
                                    Ok(Some(_)) => {}
                                    Err(status) => break Some(status),
                                }
                            }
                        }
                    };
                    tried += 1;
                    let Some(status) = status else { continue };
                    let size = status.message().len() + status.details().len();
                    let what = format!("{}.{} {name}", service.name(), method.name());
                    assert!(size < 2_048, "{what}: {size} bytes");
                    assert!(!status.message().contains(&"x".repeat(201)), "{what}: {status}");
                }
            }
        }
    }
    assert!(tried > 150, "{tried}");
    server.stop().await;
}
