"""The page at `/` of a running server in headless Chromium: what it shows, its accessibility by axe-core, and the requests that it
gives as code. Prints a line per check; the exit code is 1 if one fails.

    python tests/page/run.py URL CHROMIUM [FOLDER]

Screenshots are written to FOLDER.
"""

import ast
import json
import pathlib
import re
import shlex
import subprocess
import sys

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
# An answer can take this long on a busy machine without an accelerator.
PATIENCE_MS = 300_000
HOSTILE = "It's \"quoted\" \\ $HOME `id` <img src=x onerror=alert(1)> {{data}} 日本"


class Page:
    """A tab that remembers its errors and its requests."""

    def __init__(self, browser, url, viewport, scheme="light"):
        self.url, self.errors, self.requests = url, [], []
        self.context = browser.new_context(viewport=viewport, color_scheme=scheme)
        self.tab = self.context.new_page()
        self.tab.set_default_timeout(PATIENCE_MS)
        self.tab.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.goto(url)

    def fill(self, query, passages):
        self.tab.get_by_label("Query").fill(query)
        self.tab.get_by_label("Passages").fill(passages)

    def rank(self):
        self.tab.get_by_role("button", name="Rank").click()
        expect(self.status()).to_contain_text("Ranked", timeout=PATIENCE_MS)

    def example(self):
        self.tab.get_by_role("button", name="Load the example").click()
        self.rank()

    def status(self):
        return self.tab.get_by_role("status")

    def alert(self):
        return self.tab.get_by_role("alert")

    def snippet(self, language):
        self.tab.get_by_label(language, exact=True).check()
        return self.tab.locator("#snippet").inner_text()

    def check(self):
        """No accessibility violation, no horizontal scrolling, no error in the console."""
        found = Axe().run(self.tab, options={"runOnly": TAGS}).response["violations"]
        problems = [(one["id"], [node["html"][:200] for node in one["nodes"][:3]]) for one in found]
        assert not problems, problems
        width, window = self.tab.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width <= window, f"{width} pixels in a window of {window}"
        assert not self.errors, self.errors


def loads_nothing_else(page):
    page.example()
    base = page.url.rstrip("/")
    strange = [one for one in page.requests if not one.startswith((base + "/", "data:"))]
    assert not strange, strange
    assert {one.removeprefix(base) for one in page.requests if one.startswith(base)} == {"/", "/v2/rerank"}, page.requests


def ranks_by_keyboard(page):
    tab, keys = page.tab, page.tab.keyboard
    names = []
    for _ in range(5):
        keys.press("Tab")
        names.append(tab.evaluate("document.activeElement.id"))
        ring = tab.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert ring != "none", f"{names[-1]} does not show its focus"
    assert names == ["query", "passages", "method", "rank", "example"], names
    keys.press("Enter")
    keys.press("Shift+Tab")
    keys.press("Enter")
    expect(page.status()).to_contain_text("Ranked 10 passages", timeout=PATIENCE_MS)


def is_a_table(page):
    page.example()
    tab = page.tab
    assert tab.get_by_role("table", name="Ranking").count() == 1
    assert tab.get_by_role("row").count() == 11, tab.get_by_role("row").count()
    heads = tab.get_by_role("columnheader").all_inner_texts()
    assert {"Rank", "Was", "Score", "Passage"} <= {head.strip() for head in heads}, heads
    places = tab.get_by_role("table").locator("td.place").all_inner_texts()
    assert [int(place.strip("# ")) for place in places] == list(range(1, 11)), places
    page.check()


def offers_the_methods(page):
    page.tab.get_by_role("button", name="Load the example").click()
    names = page.tab.get_by_label("Method").locator("option").all_inner_texts()
    assert names[0].endswith("(default)") and "retriever" in names, names
    page.tab.get_by_label("Method").select_option("retriever")
    page.rank()
    assert page.tab.locator("td.was").all_inner_texts() == [str(place) for place in range(1, 11)], "the input order"


def shows_the_bias(page):
    page.tab.get_by_label("Method").select_option("moi")
    page.example()
    expect(page.tab.get_by_role("heading", name="Position bias in prompts of 2 passages")).to_be_visible()
    page.check()


def texts_are_no_markup(page):
    page.fill("quotes?", f"{HOSTILE}\n\nA first line\nof two.")
    page.rank()
    assert page.tab.locator("#count").inner_text() == "2 passages"
    assert HOSTILE in page.tab.get_by_role("table").inner_text()
    assert page.tab.locator("img").count() == 0
    page.check()


def gives_requests_that_run(page):
    page.fill("what's quoted?", f"{HOSTILE}\nrye bread")
    page.rank()
    best = int(page.tab.locator("td.was").first.inner_text()) - 1
    sent = {"query": "what's quoted?", "documents": [HOSTILE, "rye bread"], "rerankd_details": True}
    curl = page.snippet("curl")
    answer = json.loads(subprocess.run(["bash", "-c", curl], capture_output=True, check=True).stdout)
    assert answer["results"][0]["index"] == best, answer
    calls = [node for node in ast.walk(ast.parse(page.snippet("Python"))) if isinstance(node, ast.Call)]
    bodies = [ast.literal_eval(one.value) for call in calls for one in call.keywords if one.arg == "json"]
    assert bodies == [sent], bodies
    page.tab.get_by_label("Method").select_option("query-generation")
    words = shlex.split(page.snippet("gRPC"))
    message = json.loads(words[words.index("-d") + 1])
    assert message["method"] == "METHOD_QUERY_GENERATION" and words[-1] == "rerankd.v1.RerankService/Rerank", words
    assert [one["text"] for one in message["passages"]] == sent["documents"], message


def copies(page):
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.fill("what?", "this\nthat")
    page.tab.get_by_role("button", name="Copy").click()
    expect(page.status()).to_have_text("The request was copied.")
    copied = page.tab.evaluate("navigator.clipboard.readText()")
    assert copied.strip() == page.snippet("curl").strip(), copied


def says_what_is_missing(page):
    page.tab.get_by_role("button", name="Rank").click()
    expect(page.alert()).to_have_text("Enter a query.")
    assert page.tab.evaluate("document.activeElement.id") == "query"
    page.check()


def shows_errors(page):
    page.fill("what?", "this\nthat")
    full = {"message": "the queue is full", "id": "1"}
    page.tab.route("**/v2/rerank", lambda route: route.fulfill(status=429, headers={"retry-after": "3"}, json=full))
    page.tab.get_by_role("button", name="Rank").click()
    expect(page.alert()).to_have_text("the queue is full (HTTP 429). Try again in 3 seconds.")
    page.tab.unroute("**/v2/rerank")
    page.tab.route("**/v2/rerank", lambda route: route.abort())
    page.tab.get_by_role("button", name="Rank").click()
    expect(page.alert()).to_contain_text("The server does not answer")
    page.errors.clear()  # Chromium logs failed requests.
    page.check()
    page.tab.unroute("**/v2/rerank")
    page.rank()
    expect(page.alert()).to_be_empty()


def ranks_a_hundred(page):
    text = "The looms of Harrowgate were driven by water from the River Senn. " * 8
    page.fill("Which river drove the looms?", "\n\n".join(f"Passage {number}. {text}" for number in range(100)))
    page.rank()
    assert page.tab.locator("td.place").count() == 100
    page.tab.locator("summary").first.click()
    assert page.tab.locator("details[open]").count() == 1
    page.check()


CHECKS = [
    (loads_nothing_else, DESKTOP, "light"),
    (ranks_by_keyboard, DESKTOP, "light"),
    (is_a_table, DESKTOP, "light"),
    (is_a_table, DESKTOP, "dark"),
    (is_a_table, PHONE, "light"),
    (is_a_table, PHONE, "dark"),
    (offers_the_methods, DESKTOP, "light"),
    (shows_the_bias, DESKTOP, "dark"),
    (shows_the_bias, PHONE, "light"),
    (texts_are_no_markup, PHONE, "light"),
    (gives_requests_that_run, DESKTOP, "light"),
    (copies, DESKTOP, "light"),
    (says_what_is_missing, DESKTOP, "light"),
    (says_what_is_missing, PHONE, "dark"),
    (shows_errors, DESKTOP, "light"),
    (ranks_a_hundred, DESKTOP, "light"),
    (ranks_a_hundred, PHONE, "light"),
]


def main(url, chromium, folder=None):
    failed = 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium)
        for check, viewport, scheme in CHECKS:
            name = f"{check.__name__} {viewport['width']} {scheme}"
            page = Page(browser, url, viewport, scheme)
            try:
                check(page)
                print(f"ok      {name}")
            except Exception as error:  # One failed check does not end the others.
                failed += 1
                print(f"FAILED  {name}: {error}")
            if folder:
                page.tab.screenshot(path=pathlib.Path(folder, re.sub(r"\W", "-", name) + ".png"), full_page=True)
            page.context.close()
        browser.close()
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
