//! Messages of every method of rerankd.v1 and tei.v1, through counting, decoding, checks, conversion and work.
//!
//! | byte | meaning |
//! |---|---|
//! | 0 | the method, by its index in [`METHODS`] |
//! | 1 | how the rest is sent: see [`Form`] |
//! | rest | a message, or the raw body |

use std::sync::{LazyLock, Mutex};

use http_body::Body as _;
use server::rpc::server::{ServerOptions, in_process};
use tonic::body::Body;
use tonic::codegen::BoxFuture;
use tonic::{Code, Status};
use tower_service::Service;

use super::server::{DEADLINE_MILLISECONDS, Server, lock};

/// New methods come last, because stored inputs name a method by its index.
pub const METHODS: [&str; 22] = [
    "rerankd.v1.RerankService/Rerank",
    "rerankd.v1.RerankService/WatchRerank",
    "rerankd.v1.RerankService/RerankStream",
    "rerankd.v1.RerankService/WarmPassages",
    "rerankd.v1.BeliefService/Sample",
    "rerankd.v1.BeliefService/Entail",
    "rerankd.v1.BeliefService/Cluster",
    "rerankd.v1.UtilityService/MeasureUtility",
    "rerankd.v1.UtilityService/MeasureUtilityStream",
    "rerankd.v1.UtilityService/EvaluateRetrieval",
    "rerankd.v1.UtilityService/EvaluateRetrievalStream",
    "rerankd.v1.MetricsService/EvaluateRanking",
    "rerankd.v1.MetricsService/Correlate",
    "rerankd.v1.MetricsService/ChooseAlpha",
    "rerankd.v1.MetricsService/FitMoi",
    "rerankd.v1.ModelService/GetServerInfo",
    "rerankd.v1.ModelService/GetPositionBias",
    "tei.v1.Info/Info",
    "tei.v1.Rerank/Rerank",
    "tei.v1.Rerank/RerankStream",
    "rerankd.v1.BeliefService/CheckCitations",
    "rerankd.v1.RerankService/BuildContext",
];

/// The form in which the input's bytes are sent as a request body.
enum Form {
    /// One message.
    Message,
    /// One message twice, as on a stream.
    Twice,
    /// The bytes are the frames.
    Frames,
    /// The bytes are the frames, gzipped if their flag says so.
    Gzipped,
}

type Call = dyn Fn(http::Request<Body>) -> BoxFuture<http::Response<Body>, std::convert::Infallible> + Send;

static SERVER: LazyLock<Mutex<Server<Box<Call>>>> = LazyLock::new(|| {
    Server::new(|engine, admission| {
        let options = ServerOptions { message_bytes: 1 << 20, ..ServerOptions::default() };
        let service = in_process(engine, admission, &options);
        let call: Box<Call> = Box::new(move |request| Box::pin(service.clone().call(request)));
        call
    })
});

/// Sends one request.
///
/// # Panics
/// The answer is the server's fault, or the request keeps its permit.
pub fn run(input: &[u8]) {
    let [method, form, rest @ ..] = input else { return };
    let method = METHODS[usize::from(*method) % METHODS.len()];
    let form = match form % 4 {
        0 => Form::Message,
        1 => Form::Twice,
        2 => Form::Frames,
        _ => Form::Gzipped,
    };
    let body = match form {
        Form::Message => framed(rest),
        Form::Twice => framed(rest).repeat(2),
        Form::Frames | Form::Gzipped => rest.to_vec(),
    };
    let mut request = http::Request::post(format!("http://server/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", format!("{DEADLINE_MILLISECONDS}m"));
    if matches!(form, Form::Gzipped) {
        request = request.header("grpc-encoding", "gzip");
    }
    let request = request.body(Body::new(Whole(Some(body.into())))).unwrap();
    let server = lock(&SERVER);
    let code = server.block_on(async { status((server.edge)(request).await.unwrap()).await });
    assert!(!matches!(code, Code::Internal | Code::Unknown | Code::DataLoss), "{method}: {code:?}");
    server.settle();
}

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    [&[0][..], &length.to_be_bytes(), message].concat()
}

/// A body of one part.
struct Whole(Option<bytes::Bytes>);

impl http_body::Body for Whole {
    type Data = bytes::Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, Status>>> {
        std::task::Poll::Ready(self.0.take().map(|bytes| Ok(http_body::Frame::data(bytes))))
    }
}

/// Reads an answer to its end.
async fn status(answer: http::Response<Body>) -> Code {
    let read = |headers: &http::HeaderMap| Status::from_header_map(headers).map(|status| status.code());
    if let Some(code) = read(answer.headers()) {
        return code;
    }
    let mut body = std::pin::pin!(answer.into_body());
    let mut code = None;
    while let Some(frame) = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await {
        match frame {
            Ok(frame) => code = code.or(frame.trailers_ref().and_then(read)),
            Err(status) => return status.code(),
        }
    }
    code.expect("an answer without a status")
}
