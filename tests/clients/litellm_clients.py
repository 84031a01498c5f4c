"""litellm's rerank, by provider."""

import litellm
from common import BEST, QUESTION, TEXTS, descending, same

# Models as in litellm's documentation.
MODELS = [
    "cohere/rerank-v3.5",
    "jina_ai/jina-reranker-v2-base-multilingual",
    "hosted_vllm/BAAI/bge-reranker-v2-m3",
    "huggingface/BAAI/bge-reranker-v2-m3",
    "nvidia_nim/nvidia/llama-3_2-nv-rerankqa-1b-v2",
    "nvidia_nim/ranking/nvidia/llama-3.2-nv-rerankqa-1b-v2",
]


def run(checks, servers):
    litellm.telemetry = False

    def ask(model):
        answer = litellm.rerank(
            model=model, query=QUESTION, documents=TEXTS, top_n=2, api_base=servers.http, api_key=servers.token
        )
        results = answer.results
        same(results[0]["index"], BEST)
        descending(result["relevance_score"] for result in results)

    for model in MODELS:
        checks(f"litellm {model}", lambda model=model: ask(model))
