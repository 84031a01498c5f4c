"""The library rerankers, by its providers of APIs."""

from common import BEST, QUESTION, TEXTS, same
from rerankers import Reranker


def run(checks, servers):
    def ask(model, provider, path):
        given = {"api_provider": provider, "api_key": servers.token, "url": f"{servers.http}{path}"}
        ranker = Reranker(model, model_type="APIRanker", verbose=0, **given)
        found = ranker.rank(query=QUESTION, docs=TEXTS)
        same(found.top_k(1)[0].doc_id, BEST)

    for model, provider, path in (
        ("rerank-v3.5", "cohere", "/v1/rerank"),
        ("jina-reranker-v2-base-multilingual", "jina", "/v1/rerank"),
        ("tei", "text-embeddings-inference", "/rerank"),
    ):
        checks(f"rerankers {provider}", lambda model=model, provider=provider, path=path: ask(model, provider, path))
