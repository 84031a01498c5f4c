"""Postprocessors of LlamaIndex."""

import warnings

import httpx
from common import BEST, HUNDRED, MANY, QUESTION, TEXTS, descending, same, within_its_time
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.jinaai_rerank import JinaRerank
from llama_index.postprocessor.nvidia_rerank import NVIDIARerank
from llama_index.postprocessor.siliconflow_rerank import SiliconFlowRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference
from llama_index.postprocessor.xinference_rerank import XinferenceRerank


def ranked(client, texts=TEXTS):
    nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in texts]
    found = client.postprocess_nodes(nodes, query_str=QUESTION)
    descending(node.score for node in found)
    return [node.text for node in found]


def run(checks, servers):
    # NVIDIA's client warns which model it uses.
    warnings.simplefilter("ignore")
    url, token = servers.http, servers.token
    # As in docs/how-to/migrate.md, because the default client waits only five seconds.
    patient = httpx.Client(timeout=60)

    def jina():
        client = JinaRerank(base_url=f"{url}/v1", api_key=token)
        same(ranked(client)[0], TEXTS[BEST])

    def jina_errors():
        client = JinaRerank(base_url=f"{url}/v1", api_key="stranger")
        try:
            ranked(client)
        except RuntimeError as error:
            assert "token" in str(error), error
        else:
            raise AssertionError("a stranger is answered")

    def tei():
        client = TextEmbeddingInference(base_url=url, auth_token=f"Bearer {token}", top_n=2)
        same(ranked(client)[0], TEXTS[BEST])

    def nvidia():
        # The model is the first that the server lists.
        client = NVIDIARerank(base_url=f"{url}/v1", api_key=token)
        same(ranked(client)[0], TEXTS[BEST])

    def nvidia_in_batches():
        given = {"api_key": token, "http_client": patient, "top_n": len(MANY)}
        found = ranked(NVIDIARerank(base_url=f"{url}/v1", max_batch_size=100, **given), MANY)
        same(len(found), len(MANY))
        servers.check_order(found)

    def nvidia_within_its_time():
        client = NVIDIARerank(base_url=f"{servers.open_http}/v1", max_batch_size=100, top_n=100)
        same(len(within_its_time(lambda: ranked(client, HUNDRED))), 100)

    def siliconflow():
        client = SiliconFlowRerank(base_url=f"{url}/v1/rerank", api_key=token)
        same(ranked(client)[0], TEXTS[BEST])

    def xinference():
        # It sends no token.
        same(ranked(XinferenceRerank(base_url=servers.open_http))[0], TEXTS[BEST])

    for name, check in (
        ("JinaRerank", jina),
        ("JinaRerank: errors", jina_errors),
        ("TextEmbeddingInference", tei),
        ("NVIDIARerank", nvidia),
        ("NVIDIARerank: max_batch_size", nvidia_in_batches),
        ("NVIDIARerank: a hundred documents within five seconds", nvidia_within_its_time),
        ("SiliconFlowRerank", siliconflow),
        ("XinferenceRerank", xinference),
    ):
        checks(f"llama-index {name}", check)
