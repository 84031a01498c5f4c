"""Cohere's SDK, version 5 or 7."""

import asyncio

import cohere
from common import BEST, QUESTION, TEXTS, descending, same

MODEL = "rerank-v3.5"


def refused(status, call):
    try:
        call()
    except cohere.core.ApiError as error:
        assert error.status_code == status, f"{error.status_code}: {error.body}"
    else:
        raise AssertionError(f"{status} expected")


def run(checks, servers):
    given = {"api_key": servers.token, "base_url": servers.http}
    v1, v2 = cohere.Client(**given), cohere.ClientV2(**given)

    def version_1():
        answer = v1.rerank(model=MODEL, query=QUESTION, documents=TEXTS, top_n=2, return_documents=True)
        same([result.index for result in answer.results][0], BEST)
        same(answer.results[0].document.text, TEXTS[BEST])
        objects = [{"title": "Middlemarch", "text": TEXTS[0]}, {"title": "", "text": TEXTS[2]}]
        answer = v1.rerank(model=MODEL, query=QUESTION, documents=objects, rank_fields=["title", "text"])
        assert len(answer.results) == 2, answer

    def version_2():
        answer = v2.rerank(model=MODEL, query=QUESTION, documents=TEXTS, max_tokens_per_doc=64)
        descending(result.relevance_score for result in answer.results)
        assert answer.id and answer.meta.billed_units.search_units == 1, answer
        assert any(MODEL in warning for warning in answer.meta.warnings), answer.meta

    def errors():
        refused(422, lambda: v2.rerank(model=MODEL, query="", documents=TEXTS))
        stranger = cohere.ClientV2(api_key="stranger", base_url=servers.http)
        refused(401, lambda: stranger.rerank(model=MODEL, query=QUESTION, documents=TEXTS))

    def asynchronous():
        async def ask():
            client = cohere.AsyncClientV2(**given)
            return await asyncio.gather(
                *(client.rerank(model=MODEL, query=QUESTION, documents=TEXTS, top_n=1) for _ in range(4))
            )

        same({answer.results[0].index for answer in asyncio.run(ask())}, {BEST})

    version = cohere.__version__ if hasattr(cohere, "__version__") else ""
    for name, check in (("v1", version_1), ("v2", version_2), ("v2, asynchronous", asynchronous), ("errors", errors)):
        checks(f"cohere {version} {name}", check)
