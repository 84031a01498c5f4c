"""The examples of the README, against FakeServer."""

import pathlib
import re

import pytest

from rerankd.testing import FakeServer

README = pathlib.Path(__file__).parents[1] / "README.md"


def test_examples(
    server: FakeServer, stub: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RERANKD", str(stub))
    text = README.read_text()
    scope: dict[str, object] = {}
    printed = []
    for block in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL):
        exec(block.replace("Rerankd()", f'Rerankd("{server.address}")'), scope)
        printed.append(capsys.readouterr().out)
    assert printed[0] == re.findall(r"```text\n(.*?)```", text, flags=re.DOTALL)[0]
    assert printed[2] == "q1 Eliot wrote Middlemarch.\n"
