"""Document compressors of LangChain."""

import asyncio
import warnings

from common import BEST, MANY, QUESTION, TEXTS, descending, same
from langchain_cohere import CohereRerank
from langchain_core.documents import Document
from langchain_nvidia_ai_endpoints import NVIDIARerank


def documents(texts):
    return [Document(page_content=text) for text in texts]


def texts(found):
    descending(document.metadata["relevance_score"] for document in found)
    return [document.page_content for document in found]


def run(checks, servers):
    # NVIDIA's client warns of unknown models.
    warnings.simplefilter("ignore")
    url, token = servers.http, servers.token

    def cohere():
        client = CohereRerank(base_url=url, cohere_api_key=token, model="rerank-v3.5")
        found = client.compress_documents(documents(TEXTS), QUESTION)
        same(texts(found)[0], TEXTS[BEST])
        found = asyncio.run(client.acompress_documents(documents(TEXTS), QUESTION))
        same(texts(found)[0], TEXTS[BEST])

    def nvidia(**options):
        return NVIDIARerank(base_url=f"{url}/v1", api_key=token, **options)

    def nvidia_alone():
        for client in (nvidia(), nvidia(model="nvidia/llama-nemotron-rerank-1b-v2")):
            same(texts(client.compress_documents(documents(TEXTS), QUESTION))[0], TEXTS[BEST])

    def check_many(client, model=""):
        found = texts(client.compress_documents(documents(MANY), QUESTION))
        same(len(found), len(MANY))
        servers.check_order(found, model)

    def nvidia_in_batches():
        client = nvidia(max_batch_size=100, top_n=len(MANY))
        check_many(client)

    def nvidia_by_scores_that_stand_alone():
        client = nvidia(model="query-generation", top_n=len(MANY))
        check_many(client, "query-generation")

    for name, check in (
        ("CohereRerank", cohere),
        ("NVIDIARerank", nvidia_alone),
        ("NVIDIARerank: max_batch_size", nvidia_in_batches),
        ("NVIDIARerank: batches by a method whose scores stand alone", nvidia_by_scores_that_stand_alone),
    ):
        checks(f"langchain {name}", check)
