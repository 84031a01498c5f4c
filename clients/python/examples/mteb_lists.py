"""Evaluate a method with MTEB on labelled lists: python mteb_lists.py LISTS.jsonl[.gz] HOST:PORT [METHOD [COUNT]].

It prints the nDCG@10 in the list of `rerankd compare`, if labels are 0 or 1, the method reads no first-stage scores,
and the server has `generator.reproducible = true`: otherwise rounding swaps near ties.
"""

from __future__ import annotations

import gzip
import itertools
import json
import sys
from typing import Any

import mteb
from datasets import Dataset
from mteb.abstasks.retrieval import AbsTaskRetrieval
from mteb.abstasks.retrieval_dataset_loaders import RetrievalSplitData
from mteb.abstasks.task_metadata import TaskMetadata

from rerankd.integrations.mteb import RerankdSearch


class Lists(AbsTaskRetrieval):
    """A reranking task. Questions without a relevant passage in their list are left out."""

    metadata = TaskMetadata(
        name="Lists",
        description="Labelled lists",
        type="Reranking",
        dataset={"path": "local", "revision": "local"},
        eval_splits=["test"],
        eval_langs=["eng-Latn"],
        main_score="ndcg_at_10",
    )

    def __init__(self, path: str, count: int | None = None) -> None:
        super().__init__()
        self._path, self._count = path, count

    def load_data(self, *_: object, **__: object) -> None:
        with gzip.open(self._path, "rt") if self._path.endswith(".gz") else open(self._path) as file:
            lists = [json.loads(line) for line in itertools.islice(file, self._count)]
        queries, corpus = [], []
        relevant: dict[str, dict[str, int]] = {}
        ranked: dict[str, list[str]] = {}
        for at, row in enumerate(lists):
            name = f"q{at}"
            queries.append({"id": name, "text": row["question"]})
            # The same passage may have other labels in another list.
            documents = [
                {"id": f"{name}-{number}", "title": passage.get("title") or "", "text": passage["text"]}
                for number, passage in enumerate(row["passages"])
            ]
            corpus += documents
            ranked[name] = [document["id"] for document in documents]
            relevant[name] = {
                document["id"]: 1
                for document, passage in zip(documents, row["passages"], strict=True)
                if _label(passage) >= 0.5
            }
        split = RetrievalSplitData(
            corpus=Dataset.from_list(corpus),
            queries=Dataset.from_list(queries),
            relevant_docs=relevant,
            top_ranked=ranked,
        )
        self.dataset = {"default": {"test": split}}
        self.data_loaded = True


def _label(passage: dict[str, Any]) -> float:
    return float(passage["label"] if "label" in passage else passage["supporting"])


def main(path: str, address: str, method: str = "query-generation", count: str | None = None) -> float:
    task = Lists(path, int(count) if count else None)
    found = mteb.evaluate(RerankdSearch(address, method=method), task, cache=None)
    return float(found[0].get_score())


if __name__ == "__main__":
    print(f"{main(*sys.argv[1:]):.3f}")
