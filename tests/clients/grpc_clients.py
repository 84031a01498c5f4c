"""grpcio against rerankd.v1 and tei.v1, with stubs made from proto/."""

import grpc
from common import QUESTION, TEXTS
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from rerankd.v1 import belief_pb2, belief_pb2_grpc, citation_pb2, metrics_pb2, metrics_pb2_grpc, model_pb2, model_pb2_grpc
from rerankd.v1 import rerank_pb2, rerank_pb2_grpc, utility_pb2, utility_pb2_grpc
from tei.v1 import tei_pb2, tei_pb2_grpc


class Recorder(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Adds the token, and notes which methods are called."""

    def __init__(self, token):
        self.token, self.called = token, set()

    def _call(self, proceed, details, request):
        self.called.add(details.method.lstrip("/"))
        metadata = [*(details.metadata or []), ("authorization", f"Bearer {self.token}")]
        details = grpc._interceptor._ClientCallDetails(
            details.method, details.timeout, metadata, details.credentials, None, None
        )
        return proceed(details, request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = intercept_stream_stream = _call


def passages():
    scores = [2.0, 1.0, 3.0]
    return [rerank_pb2.Passage(id=f"p{at}", text=text, retriever_score=scores[at]) for at, text in enumerate(TEXTS)]


def rerank(**fields):
    return rerank_pb2.RerankRequest(query=QUESTION, passages=passages(), method=rerank_pb2.METHOD_QUERY_GENERATION, **fields)


def refused(code, call):
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() == code, f"{error.code()}: {error.details()}"
        return error
    raise AssertionError(f"{code} expected")


def run(checks, servers):
    address, token = servers.grpc, servers.token
    plain = grpc.insecure_channel(address)
    recorder = Recorder(token)
    channel = grpc.intercept_channel(plain, recorder)
    reranks = rerank_pb2_grpc.RerankServiceStub(channel)
    beliefs = belief_pb2_grpc.BeliefServiceStub(channel)
    utilities = utility_pb2_grpc.UtilityServiceStub(channel)
    metrics = metrics_pb2_grpc.MetricsServiceStub(channel)
    models = model_pb2_grpc.ModelServiceStub(channel)
    sampling = belief_pb2.SamplingOptions(samples=1, max_tokens=4)
    measure = utility_pb2.MeasureUtilityRequest(
        question=QUESTION, passages=passages(), references=["George Eliot"], sampling=sampling
    )
    retrieval = utility_pb2.EvaluateRetrievalRequest(
        question=QUESTION, passages=passages(), references=["George Eliot"], answer_tokens=4
    )

    def without_token():
        stub = rerank_pb2_grpc.RerankServiceStub(plain)
        refused(grpc.StatusCode.UNAUTHENTICATED, lambda: stub.Rerank(rerank()))

    def server_info():
        info = models.GetServerInfo(model_pb2.GetServerInfoRequest())
        assert info.generator.name and info.worker.ready, info
        models.GetPositionBias(model_pb2.GetPositionBiasRequest())

    def rerank_unary():
        answer = reranks.Rerank(rerank(top_n=2, return_passages=True))
        assert len(answer.results) == 2 and answer.results[0].id == "p2", answer
        assert answer.results[0].passage.text == TEXTS[2], answer

    def rerank_moi():
        request = rerank()
        request.method = rerank_pb2.METHOD_MOI
        answer = reranks.Rerank(request)
        assert sorted(result.id for result in answer.results) == ["p0", "p1", "p2"], answer

    def watch():
        events = list(reranks.WatchRerank(rerank_pb2.WatchRerankRequest(request=rerank())))
        kinds = [event.WhichOneof("event") for event in events]
        assert kinds[0] == "planned" and kinds[-1] == "final", kinds

    def rerank_stream():
        good, bad = rerank(), rerank_pb2.RerankRequest(query="", passages=passages())
        asked = [("a", good), ("b", bad), ("c", good)]
        requests = iter(rerank_pb2.RerankStreamRequest(request_id=key, request=request) for key, request in asked)
        answers = {answer.request_id: answer.WhichOneof("outcome") for answer in reranks.RerankStream(requests)}
        assert answers == {"a": "response", "b": "error", "c": "response"}, answers

    def warm():
        events = list(reranks.WarmPassages(rerank_pb2.WarmPassagesRequest(passages=passages())))
        assert events, "no event"

    def context():
        built = reranks.BuildContext(rerank_pb2.BuildContextRequest(request=rerank(), max_tokens=64))
        assert 0 < built.tokens <= 64 and built.passages, built

    def errors():
        error = refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: reranks.Rerank(rerank_pb2.RerankRequest(query="")))
        trailers = dict(error.trailing_metadata())
        assert b"query" in trailers["grpc-status-details-bin"], trailers
        slow = rerank()
        slow.method = rerank_pb2.METHOD_MOI
        refused(grpc.StatusCode.DEADLINE_EXCEEDED, lambda: reranks.Rerank(slow, timeout=0.001))

    def cancelled():
        call = reranks.WatchRerank(rerank_pb2.WatchRerankRequest(request=rerank()))
        next(call)
        call.cancel()
        refused(grpc.StatusCode.CANCELLED, lambda: list(call))

    def belief():
        events = list(beliefs.Sample(belief_pb2.SampleRequest(question=QUESTION, passages=passages(), sampling=sampling)))
        assert events[-1].WhichOneof("event") == "done", events
        pair = belief_pb2.EntailmentPair(premise="George Eliot wrote it.", hypothesis="It was written by George Eliot.")
        verdicts = beliefs.Entail(belief_pb2.EntailRequest(pairs=[pair])).verdicts
        assert verdicts[0].entailment > 0.5, verdicts
        texts = ["It was George Eliot.", "George Eliot did.", "The sky is green."]
        assert len(beliefs.Cluster(belief_pb2.ClusterRequest(texts=texts)).cluster_of) == 3
        cited = citation_pb2.CheckCitationsRequest(answer="George Eliot wrote it [1].", passages=passages())
        assert [one.number for one in beliefs.CheckCitations(cited).statements[0].citations] == [1]

    def utility():
        utilities.MeasureUtility(measure)
        requests = iter([utility_pb2.MeasureUtilityStreamRequest(id="a", request=measure)])
        assert [answer.id for answer in utilities.MeasureUtilityStream(requests)] == ["a"]

    def evaluate():
        utilities.EvaluateRetrieval(retrieval)
        requests = iter([utility_pb2.EvaluateRetrievalStreamRequest(id="a", request=retrieval)])
        assert [answer.id for answer in utilities.EvaluateRetrievalStream(requests)] == ["a"]

    def arithmetic():
        documents = [metrics_pb2.RankedDocument(id=key, score=score) for key, score in (("a", 2.0), ("b", 1.0))]
        query = metrics_pb2.RankedQuery(id="q", documents=documents, judgements={"b": 1.0})
        metrics.EvaluateRanking(metrics_pb2.EvaluateRankingRequest(queries=[query], metrics=["RR"]))
        series = metrics_pb2.Series(name="s", values=[1.0, 3.0, 2.0])
        metrics.Correlate(metrics_pb2.CorrelateRequest(target=[1.0, 2.0, 3.0], series=[series]))
        lists = [
            metrics_pb2.ScoredList(relevant=relevant, cutoff=2, positives=2, response_score=score)
            for relevant, score in (([True, False], 2.0), ([True, True], 5.0), ([False, False], 1.0))
        ]
        metrics.ChooseAlpha(metrics_pb2.ChooseAlphaRequest(lists=lists))
        rows = [([0, 1, 2], -2.0), ([1, 2, 0], -3.0), ([2, 0, 1], -4.0), ([0, 2, 1], -2.5)]
        orders = [metrics_pb2.ScoredOrder(passages=order, score=score) for order, score in rows]
        assert len(metrics.FitMoi(metrics_pb2.FitMoiRequest(passages=3, orders=orders)).ranking) == 3

    def tei():
        assert tei_pb2_grpc.InfoStub(channel).Info(tei_pb2.InfoRequest()).model_id
        stub = tei_pb2_grpc.RerankStub(channel)
        answer = stub.Rerank(tei_pb2.RerankRequest(query=QUESTION, texts=TEXTS, return_text=True))
        assert len(answer.ranks) == 3 and answer.ranks[0].text == TEXTS[answer.ranks[0].index], answer
        requests = iter(tei_pb2.RerankStreamRequest(query=QUESTION, text=text) for text in TEXTS)
        streamed = stub.RerankStream(requests)
        assert [rank.index for rank in streamed.ranks] == [rank.index for rank in answer.ranks], streamed
        refused(grpc.StatusCode.INVALID_ARGUMENT, lambda: stub.Rerank(tei_pb2.RerankRequest(query="", texts=TEXTS)))

    def everything():
        database = ProtoReflectionDescriptorDatabase(channel)
        offered = set()
        for service in database.get_services():
            if service.startswith(("rerankd.v1.", "tei.v1.")):
                found = database.FindFileContainingSymbol(service)
                for declared in found.service:
                    if f"{found.package}.{declared.name}" == service:
                        offered |= {f"{service}/{method.name}" for method in declared.method}
        missing = offered - recorder.called
        assert len(offered) >= 20 and not missing, missing or offered

    for name, check in (
        ("a call without a token", without_token),
        ("ModelService", server_info),
        ("Rerank", rerank_unary),
        ("Rerank by MOI", rerank_moi),
        ("WatchRerank", watch),
        ("RerankStream", rerank_stream),
        ("WarmPassages", warm),
        ("BuildContext", context),
        ("errors with details", errors),
        ("a cancelled stream", cancelled),
        ("BeliefService", belief),
        ("UtilityService: utilities", utility),
        ("UtilityService: retrieval", evaluate),
        ("MetricsService", arithmetic),
        ("tei.v1", tei),
        ("every method that reflection lists was called", everything),
    ):
        checks(f"grpcio: {name}", check)
    plain.close()
