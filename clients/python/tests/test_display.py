import sys
from xml.etree import ElementTree

import pytest

from rerankd import Passage, Rerankd
from rerankd.testing import FakeServer
from rerankd.v1 import rerank_pb2


def test_html_has_bars_and_bias_and_escapes_texts(client: Rerankd) -> None:
    html = client.rerank("<script>x", [Passage("<b>x</b>", title="T&T"), "y"], method="moi")._repr_html_()
    assert "<script>" not in html
    assert "&lt;b&gt;x&lt;/b&gt;" in html
    assert "T&amp;T" in html
    assert "position bias, prompts of 2" in html
    assert "width:" in html
    assert len(ElementTree.fromstring(html).findall(".//tr")) == 3


def test_html_of_an_empty_ranking(client: Rerankd, server: FakeServer) -> None:
    server.script("Rerank", rerank_pb2.RerankResponse(warnings=["nothing helps"]))
    assert "<li>nothing helps</li>" in client.rerank("q", ["a"])._repr_html_()


def test_to_pandas(client: Rerankd) -> None:
    pytest.importorskip("pandas")
    frame = client.rerank("rye", ["wheat", "rye"]).to_pandas()
    assert list(frame["text"]) == ["rye", "wheat"]
    assert list(frame["index"]) == [1, 0]


def test_neither_numpy_nor_pandas_is_imported() -> None:
    import subprocess

    code = "import sys, rerankd, rerankd.testing; sys.exit('numpy' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
