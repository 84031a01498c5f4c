"""Rerank a TREC run with the texts of ir-datasets, and compare both orders with ranx.

python ranx_compare.py beir/scifact/test bm25.run 127.0.0.1:50051
"""

from __future__ import annotations

import sys
from typing import Any

import ir_datasets
import ranx

from rerankd import Request, Rerankd

DEPTH = 20
"""Documents of a query that are reranked."""


def main(dataset: Any, run: str, address: str) -> ranx.Report:
    """The table of ranx, with the run's best documents in their order and in the server's."""
    queries = {query.query_id: query.default_text() for query in dataset.queries_iter()}
    documents = dataset.docs_store()
    first, requests = {}, []
    for query, scores in ranx.Run.from_file(run, kind="trec").to_dict().items():
        first[query] = dict(sorted(scores.items(), key=lambda item: -item[1])[:DEPTH])
        passages = [
            {"id": name, "text": documents.get(name).default_text(), "score": score}
            for name, score in first[query].items()
        ]
        requests.append(Request(queries[query], passages, id=query))
    with Rerankd(address) as client:
        # ranx sorts by score, and equal scores in any order.
        reranked = {
            answer.request.id: {result.id: 1 / (1 + result.rank) for result in answer.result()}
            for answer in client.rerank_many(requests)
        }
    labels = dataset.qrels_dict()
    judged = ranx.Qrels({query: labels.get(query) or {"-": 0} for query in first})
    runs = [ranx.Run(first, name="run"), ranx.Run(reranked, name="rerankd")]
    return ranx.compare(judged, runs, metrics=["ndcg@10", "mrr@10"], max_p=0.05)


if __name__ == "__main__":
    name, file, server = sys.argv[1:]
    print(main(ir_datasets.load(name), file, server))
