"""MTEB finds the nDCG@10 of `rerankd compare`. Needs the binary in RERANKD, and mteb, which installs torch."""

import importlib
import json
import os
import pathlib
import subprocess

import pytest

from rerankd import Rerankd

pytest.importorskip("mteb.abstasks")
BINARY = os.environ.get("RERANKD", "")
LISTS = str(pathlib.Path(__file__).with_name("lists.jsonl"))
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.mark.skipif(not BINARY, reason="RERANKD is not set")
@pytest.mark.timeout(600)
def test_as_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    with Rerankd.launch(binary=BINARY, settings={"generator.reproducible": True}) as client:
        assert client._server
        address = client._server.address
        found = importlib.import_module("mteb_lists").main(LISTS, address)
        command = [BINARY, "compare", LISTS, "--method", "query-generation", "--format", "json", "--server", address]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    figures = {figure["name"]: figure["value"] for figure in map(json.loads, printed.splitlines())}
    assert found == pytest.approx(figures["lists query-generation nDCG@10 in the list"], abs=0.0005)
