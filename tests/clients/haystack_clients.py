"""Rankers of Haystack."""

from common import BEST, HUNDRED, QUESTION, TEXTS, descending, same, within_its_time
from haystack import Document
from haystack.utils import Secret
from haystack_integrations.components.rankers.cohere import CohereRanker
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
from haystack_integrations.components.rankers.jina import JinaRanker
from haystack_integrations.components.rankers.nvidia import NvidiaRanker


def ranked(ranker, texts=TEXTS):
    if hasattr(ranker, "warm_up"):
        ranker.warm_up()
    found = ranker.run(query=QUESTION, documents=[Document(content=text) for text in texts])["documents"]
    descending(document.score for document in found)
    return [document.content for document in found]


def run(checks, servers):
    url, token = servers.http, Secret.from_token(servers.token)

    def cohere():
        same(ranked(CohereRanker(api_base_url=url, api_key=token))[0], TEXTS[BEST])

    def nvidia():
        for model in (None, "nvidia/llama-nemotron-rerank-1b-v2"):
            same(ranked(NvidiaRanker(model=model, api_url=f"{url}/v1", api_key=token))[0], TEXTS[BEST])

    def tei():
        same(ranked(HuggingFaceTEIRanker(url=url, token=token))[0], TEXTS[BEST])

    def tei_over_grpc():
        # It requests reflection without a token.
        same(ranked(HuggingFaceTEIRanker(url=servers.open_grpc, use_grpc=True))[0], TEXTS[BEST])

    def jina():
        same(ranked(JinaRanker(base_url=f"{url}/v1/rerank", api_key=token))[0], TEXTS[BEST])

    def jina_within_its_time():
        ranker = JinaRanker(base_url=f"{servers.open_http}/v1/rerank", api_key=token)
        same(len(within_its_time(lambda: ranked(ranker, HUNDRED))), 100)

    for name, check in (
        ("CohereRanker", cohere),
        ("NvidiaRanker", nvidia),
        ("HuggingFaceTEIRanker", tei),
        ("HuggingFaceTEIRanker over gRPC", tei_over_grpc),
        ("JinaRanker", jina),
        ("JinaRanker: a hundred documents within five seconds", jina_within_its_time),
    ):
        checks(f"haystack {name}", check)
