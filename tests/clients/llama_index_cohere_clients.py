"""The postprocessor of LlamaIndex that needs cohere 5."""

from common import BEST, QUESTION, TEXTS, same
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.cohere_rerank import CohereRerank


def run(checks, servers):
    def cohere():
        client = CohereRerank(base_url=servers.http, api_key=servers.token)
        nodes = [NodeWithScore(node=TextNode(text=text), score=0.0) for text in TEXTS]
        same(client.postprocess_nodes(nodes, query_str=QUESTION)[0].text, TEXTS[BEST])

    checks("llama-index CohereRerank", cohere)
