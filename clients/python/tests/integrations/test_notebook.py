"""The notebook in a kernel, with the real program. RERANKD is the path of the binary; without it, it is skipped."""

import os
import pathlib
import re

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

NOTEBOOK = pathlib.Path(__file__).parents[2] / "examples" / "does-my-retrieval-help.ipynb"
SOURCE = pathlib.Path(__file__).parents[2] / "src"


@pytest.mark.skipif(not os.environ.get("RERANKD"), reason="RERANKD is not set")
@pytest.mark.timeout(600)
def test_does_my_retrieval_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(SOURCE))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "the notebook is committed without outputs"
    nbclient.NotebookClient(notebook, timeout=600, startup_timeout=600).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")
    tables = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert [table.count("<tr>") for table in tables] == [4, 1 + 4 * 4], "the ranking, and all questions"
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert re.search(r"mean of 4 questions: [+-][01]\.\d\d", printed)
