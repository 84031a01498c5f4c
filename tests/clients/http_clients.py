"""SDKs of other rerankers against HTTP/JSON."""

import cohere
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.jinaai_rerank import JinaRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference

QUESTION = "Who wrote Middlemarch?"
TEXTS = ["Middlemarch appeared in eight parts.", "Bananas are yellow.", "George Eliot wrote Middlemarch in 1871."]
MODEL = "rerank-v3.5"


def refused(status, call):
    try:
        call()
    except cohere.core.ApiError as error:
        assert error.status_code == status, f"{error.status_code}: {error.body}"
    else:
        raise AssertionError(f"{status} expected")


def nodes():
    return [NodeWithScore(node=TextNode(text=text), score=0.0) for text in TEXTS]


def run(checks, url, token):
    v1, v2 = cohere.Client(api_key=token, base_url=url), cohere.ClientV2(api_key=token, base_url=url)

    def cohere_v1():
        answer = v1.rerank(model=MODEL, query=QUESTION, documents=TEXTS, top_n=2, return_documents=True)
        assert len(answer.results) == 2 and answer.results[0].document.text == TEXTS[answer.results[0].index], answer
        objects = [{"title": "Middlemarch", "text": TEXTS[0]}, {"title": "", "text": TEXTS[2]}]
        answer = v1.rerank(model=MODEL, query=QUESTION, documents=objects, rank_fields=["title", "text"])
        assert len(answer.results) == 2, answer

    def cohere_v2():
        answer = v2.rerank(model=MODEL, query=QUESTION, documents=TEXTS, max_tokens_per_doc=64)
        scores = [result.relevance_score for result in answer.results]
        assert len(scores) == 3 and scores == sorted(scores, reverse=True), scores
        assert answer.id and answer.meta.billed_units.search_units == 1, answer

    def cohere_errors():
        refused(404, lambda: v2.rerank(model="nobody", query=QUESTION, documents=TEXTS))
        refused(422, lambda: v2.rerank(model=MODEL, query="", documents=TEXTS))
        stranger = cohere.ClientV2(api_key="stranger", base_url=url)
        refused(401, lambda: stranger.rerank(model=MODEL, query=QUESTION, documents=TEXTS))

    def cohere_async():
        import asyncio

        async def ask():
            client = cohere.AsyncClientV2(api_key=token, base_url=url)
            return await asyncio.gather(
                *(client.rerank(model=MODEL, query=QUESTION, documents=TEXTS, top_n=1) for _ in range(4))
            )

        orders = {answer.results[0].index for answer in asyncio.run(ask())}
        assert len(orders) == 1, orders

    def jina():
        model = "jina-reranker-v2-base-multilingual"
        client = JinaRerank(base_url=f"{url}/v1", api_key=token, model=model, top_n=2)
        ranked = client.postprocess_nodes(nodes(), query_str=QUESTION)
        assert len(ranked) == 2 and ranked[0].score >= ranked[1].score, ranked

    def jina_errors():
        client = JinaRerank(base_url=f"{url}/v1", api_key=token, model="nobody", top_n=2)
        try:
            client.postprocess_nodes(nodes(), query_str=QUESTION)
        except RuntimeError as error:
            assert "nobody" in str(error), error
        else:
            raise AssertionError("an unknown model is taken")

    def tei():
        client = TextEmbeddingInference(base_url=url, auth_token=f"Bearer {token}", top_n=2)
        ranked = client.postprocess_nodes(nodes(), query_str=QUESTION)
        assert len(ranked) == 2 and ranked[0].score >= ranked[1].score, ranked

    for name, check in (
        ("cohere v1", cohere_v1),
        ("cohere v2", cohere_v2),
        ("cohere v2, asynchronous", cohere_async),
        ("cohere: errors", cohere_errors),
        ("llama-index JinaRerank", jina),
        ("llama-index JinaRerank: errors", jina_errors),
        ("llama-index TextEmbeddingInference", tei),
    ):
        checks(name, check)
