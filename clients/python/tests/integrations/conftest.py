import pathlib
import re
from typing import Any

import pytest

from integrations import Example
from rerankd.testing import FakeServer

PAGE = pathlib.Path(__file__).parents[4] / "docs" / "how-to" / "python-frameworks.md"


@pytest.fixture
def example(server: FakeServer) -> Example:
    """Runs the example of a section of the page, with the variables that its text names. Returns its variables."""

    def run(section: str, **scope: Any) -> dict[str, Any]:
        text = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
        (found,) = (part for part in text if part.startswith(section + "\n"))
        (code,) = re.findall(r"```python\b.*?\n(.*?)```", found, flags=re.DOTALL)
        assert "127.0.0.1:50051" in code
        exec(code.replace("127.0.0.1:50051", server.address), scope)
        return scope

    return run
