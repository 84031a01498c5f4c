"""A run is reranked with texts of ir-datasets, and ranx compares both."""

import importlib
import pathlib

import pytest

from rerankd.testing import FakeServer

ir_datasets = pytest.importorskip("ir_datasets")
pytest.importorskip("ranx")
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.mark.timeout(300)
def test_the_run_and_its_reranking_are_compared(
    server: FakeServer, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    documents, queries, labels, run = (tmp_path / name for name in ("docs.tsv", "queries.tsv", "qrels", "bm25.run"))
    documents.write_text("a\twheat\nb\trye bread\nc\toats\n")
    queries.write_text("1\trye bread\n2\twheat\n")
    labels.write_text("1 0 b 1\n")
    run.write_text("1 Q0 a 1 3.0 x\n1 Q0 c 2 2.0 x\n1 Q0 b 3 1.0 x\n2 Q0 b 1 2.0 x\n2 Q0 a 2 1.0 x\n")
    dataset = ir_datasets.create_dataset(str(documents), str(queries), str(labels))
    report = importlib.import_module("ranx_compare").main(dataset, str(run), server.address)
    found = {name: report.to_dict()[name]["scores"] for name in ("run", "rerankd")}
    # Query 2 has no relevant document.
    assert found["run"]["mrr@10"] == pytest.approx(1 / 6)
    assert found["rerankd"]["mrr@10"] == pytest.approx(1 / 2)
    assert [passage.retriever_score for passage in server.calls[0].message.request.passages] == [3.0, 2.0, 1.0]
