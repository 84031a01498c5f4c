#!/usr/bin/env python3
"""Runs the examples of the README, the tutorials, the how-to pages and the Python client against a server with the default models.

    scripts/test-docs.py [PAGE...]

RERANKD names the binary. Each page gets an empty folder with the files that its examples name, one shell per block, and one
Python process for all its blocks. A word after the language of a block says how to treat it; mdBook ignores the word:

    ```sh no-run        needs a GPU, Docker, root or models of the reader: only syntax and options of rerankd are checked

JSON and YAML are parsed, TOML is checked by `rerankd check-config`. `make TARGET` in a block only checks that the target exists,
and `rerankd serve` stops as soon as the server is ready.
"""
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", "clients/python/README.md", *sorted(
    str(page.relative_to(ROOT)) for folder in ("tutorials", "how-to") for page in (ROOT / "docs" / folder).glob("*.md"))]
BINARY = Path(os.environ.get("RERANKD") or ROOT / "target/release/rerankd").absolute()
ENVIRONMENT = ROOT / "target/docs-python"
REQUIREMENTS = ["buf-bin==1.*", "cohere==7.3.1", "grpcio==1.85.1", "numpy==2.3.5", "protobuf==7.36.2", "pyyaml==6.0.3", "requests==2.32.5"]
SHELL = """set -euo pipefail
make() { command make --no-print-directory -C "$ROOT" -n "$@" >/dev/null; }
curl() { command curl --silent --show-error --fail-with-body "$@"; }
rerankd() {
  if [ "${1:-}" != serve ]; then command rerankd "$@"; return; fi
  rm -f served
  RERANKD__SERVER__LISTEN=127.0.0.1:0 RERANKD__HTTP__LISTEN=127.0.0.1:0 command rerankd "$@" --address-file served &
  local server=$! code=0
  until [ -s served ]; do kill -0 $server && sleep 0.1 || { wait $server; return; }; done
  command rerankd health --server "$(cat served)" --wait 600 || code=$?
  kill $server
  wait $server && return $code
}
"""
PYTHON = """
import json, sys
names = {"__name__": "__main__"}
for title, line, text in json.load(open(sys.argv[1])):
    exec(compile("\\n" * line + text, title, "exec"), names)
"""


def blocks(page):
    """The fenced blocks of a page: line of the fence, language, words behind it, text."""
    found = re.finditer(r"^( *)```(sh|console|python|json|toml|yaml)\b(.*)\n((?:.*\n)*?)\1```$", (ROOT / page).read_text(), re.M)
    for one in found:
        text = re.sub(f"^{one[1]}", "", one[4], flags=re.M)
        yield one.string.count("\n", 0, one.start()) + 1, one[2], one[3].split(), text


def write_files(folder):
    """The files that the examples name, with few and short lists."""
    demo = ROOT / "models/demo"
    questions = [json.loads(line) for line in (demo / "questions.jsonl").read_text().splitlines()]
    for one in questions:
        one["passages"] = one["passages"][:3]
        for place, passage in enumerate(one["passages"]):
            passage["score"] = 3.0 - place
    # Calibration needs ten lists.
    lists = "".join(json.dumps(one | {"id": f"{one['id']}-{copy}"}) + "\n" for copy in "ab" for one in questions)
    one, few = json.dumps(questions[0] | {"passages": questions[0]["passages"][:2]}) + "\n", "".join(lists.splitlines(keepends=True)[:3])
    documents = {passage["id"]: passage for one in questions for passage in one["passages"]}
    corpus = "".join(json.dumps({"_id": name, "text": passage["text"]}) + "\n" for name, passage in documents.items())
    queries = [(one["id"], one["question"]) for one in questions]
    run = "".join(f"{one['id']} Q0 {p['id']} {place} {p['score']} bm25\n" for one in questions for place, p in enumerate(one["passages"]))
    judged = [(one["id"], p["id"], str(int(p["supporting"]))) for one in questions for p in one["passages"]]
    beir = "".join("\t".join(row) + "\n" for row in [("query-id", "corpus-id", "score"), *judged])
    claim = {"question": "The Senn rises on Callow Moor.", "answers": ["SUPPORTS"], "passages": questions[1]["passages"]}
    text = {"question": "The team won the cup.", "answers": ["sports"], "passages": questions[1]["passages"]}
    sample = {"text": "Senn", "log_likelihood": -1.0, "tokens": 2}
    belief = {"question": "which river", "references": ["Senn"], "with": [sample, sample], "without": [sample, sample]}
    texts = {
        "belief.json": json.dumps(belief),
        "passages.jsonl": (demo / "passages.jsonl").read_text(), "questions.jsonl": one, "labelled.jsonl": few,
        "heldout.jsonl": few, "lists-of-three.jsonl": few, "corpus.jsonl": corpus, "bm25.run": run, "dense.run": run,
        "reranked.run": run, "qrels.txt": "".join(f"{query} 0 {document} {label}\n" for query, document, label in judged), "queries.tsv": "".join("\t".join(pair) + "\n" for pair in queries),
        "claims.jsonl": json.dumps(claim) + "\n", "texts.jsonl": json.dumps(text) + "\n",
        "examples.jsonl": json.dumps({"passage": "Rye flour absorbs water.", "query": "What absorbs water?"}) + "\n",
        "scifact/queries.jsonl": "".join(json.dumps({"_id": name, "text": text}) + "\n" for name, text in queries),
        "models/demo/passages.jsonl": (demo / "passages.jsonl").read_text(), "models/demo/questions.jsonl": one,
        "scifact/corpus.jsonl": corpus, "scifact/qrels/test.tsv": beir,
    }
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in ("lists.jsonl", "corpus.jsonl"):
        (folder / f"{name}.gz").write_bytes(gzip.compress(texts.get(name, lists).encode()))
    (folder / "target/release").mkdir(parents=True)
    (folder / "target/release/rerankd").symlink_to(BINARY)


def store(cache):
    """A store with the models of the reader's, but without what examples write: calibrations and profiles."""
    found = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rerankd/models"
    (cache / "rerankd/models").mkdir(parents=True)
    for entry in found.iterdir():
        if entry.name not in (".profiles", ".measuring"):
            (cache / "rerankd/models" / entry.name).symlink_to(entry)


def run(command, text, folder, env):
    subprocess.run(command, input=text, text=True, check=True, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def check(block, folder, env):
    """Raises an error if something is wrong with a block. Python is only compiled here."""
    _, language, words, text = block
    if language == "json":
        decoder, rest = json.JSONDecoder(), text.strip()
        while rest:
            rest = rest[decoder.raw_decode(rest)[1]:].strip()
    elif language == "yaml":
        run(["python", "-c", "import sys, yaml; yaml.safe_load(sys.stdin)"], text, folder, env)
    elif language == "toml":
        (folder / "block.toml").write_text(text)
        run(["rerankd", "check-config", "--config", "block.toml"], "", folder, env)
    elif language == "python":
        compile(text, language, "exec")
    elif "no-run" in words:
        run(["bash", "-n"], text, folder, env)
        # A wrong option is refused before the help is printed.
        for command in re.findall(r"^(?:(?:sudo|RERANKD_|rerankd-gpu).*\s)?(rerankd [^|>#\n]*)", text.replace("\\\n", ""), re.M):
            run(["bash", "-c", f"{command} --help"], "", folder, env)
    else:
        shown = re.findall(r"^\$ (.*)", text, re.M) if language == "console" else [text]
        run(["bash", "-s"], SHELL + "\n".join(shown), folder, env)


def run_python(page, found, folder, env):
    """Runs the blocks of a page in one process, because later ones use the names of earlier ones."""
    (folder / "blocks.json").write_text(json.dumps([(page, line, text) for line, _, _, text in found]))
    run(["python", "-c", PYTHON, "blocks.json"], "", folder, env)


def failed(name, action, *arguments):
    """1 if the action raises an error, which is printed."""
    begun = time.monotonic()
    try:
        action(*arguments)
        return 0
    except subprocess.CalledProcessError as error:
        print(f"{name}: exit code {error.returncode}\n{error.stdout}", flush=True)
    except (ValueError, SyntaxError) as error:
        print(f"{name}: {error}", flush=True)
    finally:
        if time.monotonic() - begun > 5:
            print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
    return 1


def make_environment():
    wanted = "\n".join(REQUIREMENTS)
    made = ENVIRONMENT / "requirements.txt"
    if not made.exists() or made.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
        subprocess.run([ENVIRONMENT / "bin/pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", *REQUIREMENTS], check=True)
        made.write_text(wanted)


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def test(pages, work):
    ports = {port: str(free) for port, free in zip(("50051", "8080"), free_ports(2))}
    path = [ENVIRONMENT / "bin", BINARY.parent, ROOT / ".tools/bin", os.environ["PATH"]]
    env = os.environ | {"PATH": ":".join(map(str, path)), "PYTHONPATH": str(ROOT / "clients/python/src"), "RERANKD": str(BINARY),
                        "ROOT": str(ROOT), "XDG_CACHE_HOME": str(work / "cache")}
    store(work / "cache")
    serve = [BINARY, "serve", "--listen", f"127.0.0.1:{ports['50051']}", "--http-listen", f"127.0.0.1:{ports['8080']}"]
    server = subprocess.Popen([*serve, "--set", "log.filter=warn"], env=env)
    failures, ran, marked = 0, Counter(), Counter()
    try:
        subprocess.run([BINARY, "health", "--server", serve[3], "--wait", "600"], check=True, stdout=subprocess.DEVNULL)
        for page in pages:
            folder, python = work / page.replace("/", "-"), []
            folder.mkdir()
            write_files(folder)
            for line, language, words, text in blocks(page):
                text = re.sub(r"(127\.0\.0\.1|localhost):(50051|8080)\b", lambda one: f"{one[1]}:{ports[one[2]]}", text)
                block = (line, language, words, text.replace("Rerankd()", f'Rerankd("{serve[3]}")'))
                failures += failed(f"{page}:{line}", check, block, folder, env)
                if language == "python" and "no-run" not in words:
                    python.append(block)
                (marked if "no-run" in words else ran)[language] += 1
            failures += failed(page, run_python, page, python, folder, env)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait()
    for title, counts in ("checked", ran), ("marked no-run", marked):
        print(f"{title}: {sum(counts.values())}", *(f"{count} {language}" for language, count in sorted(counts.items())), sep=", ")
    print(f"{failures} failed")
    return failures > 0


make_environment()
with tempfile.TemporaryDirectory() as folder:
    sys.exit(test(sys.argv[1:] or PAGES, Path(folder)))
