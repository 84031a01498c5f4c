//! A status stays small even if a string of the request is long. The strings come from the descriptors, so new fields
//! are covered. Each is added to a request that is accepted without it.

use prost::Message;
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FileDescriptorSet};
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Request, Status};

use crate::common;
use common::Scripted;
use protocol::tei_v1 as tei;
use protocol::{DESCRIPTORS, v1};

/// Greatest nesting of messages. The task of an evaluation stream is three deep.
const DEPTH: usize = 4;

/// Sends raw bytes.
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

/// An encoded field of bytes, of a text or of a message.
fn field(number: i32, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    prost::encoding::bytes::encode(u32::try_from(number).unwrap(), &content.to_vec(), &mut bytes);
    bytes
}

impl Messages {
    /// All messages of the files, the entries of maps included.
    fn of(set: &FileDescriptorSet) -> Self {
        let mut all = Vec::new();
        for file in &set.file {
            for message in &file.message_type {
                let name = format!("{}.{}", file.package(), message.name());
                let nested =
                    message.nested_type.iter().map(|inner| (format!("{name}.{}", inner.name()), inner.clone()));
                all.extend(nested);
                all.push((name, message.clone()));
            }
        }
        Self(all)
    }

    fn get(&self, name: &str) -> Option<&DescriptorProto> {
        self.0.iter().find(|(full, _)| full == name.trim_start_matches('.')).map(|(_, message)| message)
    }

    /// Short strings for the string fields of a message, and 1 for its integers.
    fn filled(message: &DescriptorProto) -> Vec<u8> {
        let mut bytes = Vec::new();
        for one in message.field.iter().filter(|one| one.oneof_index.is_none() && one.label() != Label::Repeated) {
            match one.r#type() {
                Type::String => bytes.extend(field(one.number(), b"a")),
                Type::Uint32 | Type::Uint64 | Type::Int32 | Type::Int64 => {
                    prost::encoding::uint64::encode(u32::try_from(one.number()).unwrap(), &1, &mut bytes);
                }
                _ => {}
            }
        }
        bytes
    }

    /// Every string of a message, each encoded as a message with only this string, long. Appended to an encoded
    /// message, it replaces this string.
    fn longs(&self, name: &str, long: &str, depth: usize) -> Vec<(String, Vec<u8>)> {
        let mut longs = Vec::new();
        for one in self.get(name).iter().flat_map(|message| &message.field) {
            let inner = match one.r#type() {
                Type::String => vec![(String::new(), long.as_bytes().to_vec())],
                Type::Message if depth < DEPTH => self.longs(one.type_name(), long, depth + 1),
                _ => continue,
            };
            // A nested request is already present. Other messages may be new and then need their other fields.
            let is_new = one.label() == Label::Repeated || !one.type_name().ends_with("Request");
            let others = self.get(one.type_name()).filter(|_| is_new).map(Self::filled).unwrap_or_default();
            let whole = |bytes: Vec<u8>| field(one.number(), &[&others[..], &bytes].concat());
            longs.extend(inner.into_iter().map(|(name, bytes)| (format!("{}.{name}", one.name()), whole(bytes))));
        }
        longs
    }
}

/// An accepted request of every method, by its path.
fn accepted() -> Vec<(&'static str, Vec<u8>)> {
    let texts = ["a question", "b"];
    let (rerank, passages) = (common::wire("question", &texts), common::wire("question", &texts).passages);
    let sampling = Some(v1::SamplingOptions { samples: 2, max_tokens: 4, ..Default::default() });
    let utility = v1::MeasureUtilityRequest {
        question: "which".into(),
        passages: passages.clone(),
        references: vec!["an answer".into()],
        measure_list: true,
        sampling: sampling.clone(),
        ..Default::default()
    };
    let evaluate = v1::EvaluateRetrievalRequest {
        question: "which".into(),
        passages: passages.clone(),
        references: vec!["an answer".into()],
        annotators: vec![v1::Annotator::ContainsAnswer.into()],
        ..Default::default()
    };
    let document = v1::RankedDocument { label: Some(1.0), ..Default::default() };
    let order = |passages: [u32; 2], score: f64| v1::ScoredOrder { passages: passages.to_vec(), score };
    let list = |relevant: [bool; 2], response_score: f64| v1::ScoredList {
        relevant: relevant.to_vec(),
        cutoff: 1,
        positives: Some(1),
        response_score,
    };
    vec![
        ("rerankd.v1.RerankService/Rerank", rerank.encode_to_vec()),
        (
            "rerankd.v1.RerankService/WatchRerank",
            v1::WatchRerankRequest { request: Some(rerank.clone()) }.encode_to_vec(),
        ),
        (
            "rerankd.v1.RerankService/BuildContext",
            v1::BuildContextRequest { request: Some(rerank.clone()), ..Default::default() }.encode_to_vec(),
        ),
        (
            "rerankd.v1.RerankService/RerankStream",
            v1::RerankStreamRequest { request_id: "a".into(), request: Some(rerank) }.encode_to_vec(),
        ),
        (
            "rerankd.v1.RerankService/WarmPassages",
            v1::WarmPassagesRequest { passages: passages.clone() }.encode_to_vec(),
        ),
        (
            "rerankd.v1.MetricsService/EvaluateRanking",
            v1::EvaluateRankingRequest {
                queries: vec![v1::RankedQuery { documents: vec![document], ..Default::default() }],
                metrics: vec!["P@1".into()],
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "rerankd.v1.MetricsService/Correlate",
            v1::CorrelateRequest {
                target: vec![1.0, 2.0, 3.0],
                series: vec![v1::Series { name: "s".into(), values: vec![1.0, 2.0, 3.0] }],
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "rerankd.v1.MetricsService/ChooseAlpha",
            v1::ChooseAlphaRequest {
                lists: vec![list([true, false], 1.0), list([false, false], 0.0), list([false, true], 0.5)],
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "rerankd.v1.MetricsService/FitMoi",
            v1::FitMoiRequest {
                passages: 2,
                orders: vec![order([0, 1], -1.0), order([1, 0], -2.0)],
                ..Default::default()
            }
            .encode_to_vec(),
        ),
        (
            "rerankd.v1.BeliefService/Sample",
            v1::SampleRequest { question: "which".into(), passages: passages.clone(), sampling, ..Default::default() }
                .encode_to_vec(),
        ),
        (
            "rerankd.v1.BeliefService/Entail",
            v1::EntailRequest {
                pairs: vec![v1::EntailmentPair { premise: "a".into(), hypothesis: "b".into() }],
                question: String::new(),
            }
            .encode_to_vec(),
        ),
        (
            "rerankd.v1.BeliefService/Cluster",
            v1::ClusterRequest { texts: vec!["a".into(), "b".into()], ..Default::default() }.encode_to_vec(),
        ),
        (
            "rerankd.v1.BeliefService/CheckCitations",
            v1::CheckCitationsRequest { answer: "Apples grow. [1]".into(), passages, ..Default::default() }
                .encode_to_vec(),
        ),
        ("rerankd.v1.ModelService/GetServerInfo", Vec::new()),
        (
            "rerankd.v1.ModelService/GetPositionBias",
            v1::GetPositionBiasRequest { passages: 2, ..Default::default() }.encode_to_vec(),
        ),
        ("rerankd.v1.UtilityService/MeasureUtility", utility.encode_to_vec()),
        (
            "rerankd.v1.UtilityService/MeasureUtilityStream",
            v1::MeasureUtilityStreamRequest { id: "a".into(), request: Some(utility) }.encode_to_vec(),
        ),
        ("rerankd.v1.UtilityService/EvaluateRetrieval", evaluate.encode_to_vec()),
        (
            "rerankd.v1.UtilityService/EvaluateRetrievalStream",
            v1::EvaluateRetrievalStreamRequest { id: "a".into(), request: Some(evaluate) }.encode_to_vec(),
        ),
        ("tei.v1.Info/Info", Vec::new()),
        (
            "tei.v1.Rerank/Rerank",
            tei::RerankRequest { query: "q".into(), texts: vec!["a".into()], ..Default::default() }.encode_to_vec(),
        ),
        (
            "tei.v1.Rerank/RerankStream",
            tei::RerankStreamRequest { query: "q".into(), text: "a".into(), ..Default::default() }.encode_to_vec(),
        ),
    ]
}

/// The status of a call with one message, if it ends with an error. Errors inside a stream of answers are ignored.
async fn refused(
    client: &mut tonic::client::Grpc<tonic::transport::Channel>,
    path: &str,
    message: Vec<u8>,
) -> Option<Status> {
    client.ready().await.unwrap();
    let asked = Request::new(tokio_stream::iter([message]));
    let mut answers = match client.streaming(asked, format!("/{path}").parse().unwrap(), Raw).await {
        Ok(answers) => answers.into_inner(),
        Err(status) => return Some(status),
    };
    loop {
        match answers.message().await {
            Ok(None) => return None,
            Ok(Some(_)) => {}
            Err(status) => return Some(status),
        }
    }
}

#[tokio::test]
async fn no_status_repeats_what_a_caller_sent() {
    let set = FileDescriptorSet::decode(DESCRIPTORS).unwrap();
    let messages = Messages::of(&set);
    let limits = engine::types::Limits { query_bytes: 1 << 20, passage_bytes: 1 << 20, ..common::LIMITS };
    let warm = prefix_scheduler::warm::Options { memory_bytes: 1 << 20, disk: None };
    let (engine, observed, queue_length) = Scripted { limits, warm, ..Scripted::default() }.engine().await;
    let (engine, _) = common::with_scripted_judge(&engine, std::time::Duration::ZERO);
    let server = common::serve(engine, observed, queue_length).await;
    let mut client = tonic::client::Grpc::new(server.channel().await);
    let accepted = accepted();
    let (mut tried, mut answered) = (0, 0);
    for file in set.file.iter().filter(|file| file.package().ends_with("v1")) {
        for (service, method) in
            file.service.iter().flat_map(|service| service.method.iter().map(move |method| (service, method)))
        {
            let path = format!("{}.{}/{}", file.package(), service.name(), method.name());
            let found = accepted.iter().find(|(of, _)| *of == path);
            let (_, base) = found.unwrap_or_else(|| panic!("no accepted request of {path}"));
            let status = refused(&mut client, &path, base.clone()).await;
            assert!(status.is_none(), "{path}: {status:?}");
            for long in ["x".repeat(300), "\u{7f}".repeat(300), "x".repeat(20_000)] {
                for (name, string) in messages.longs(method.input_type(), &long, 0) {
                    let status = refused(&mut client, &path, [&base[..], &string].concat()).await;
                    tried += 1;
                    let Some(status) = status else {
                        answered += 1;
                        continue;
                    };
                    let size = status.message().len() + status.details().len();
                    assert!(size < 2_048, "{path} {name}: {size} bytes");
                    assert!(!status.message().contains(&"x".repeat(201)), "{path} {name}: {status}");
                }
            }
        }
    }
    assert!(tried > 150 && answered > 50, "{answered} of {tried}");
    server.stop().await;
}
