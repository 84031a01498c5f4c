#!/usr/bin/env python3
"""Writes the generated pages of docs/reference: configuration, HTTP, gRPC and, with --binary FILE, the command line.
--binary FILE --out FOLDER writes them into FOLDER instead.
With --check-links it writes nothing: it checks the links of every Markdown file, and every docs/*.md that a source names.
"""
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = Path("docs/reference")
NOTE = "\n\n<!-- Written by scripts/reference.py. -->\n"
GRPC = """The services of the package `rerankd.v1`. The server answers reflection, so `buf curl` and grpcurl need no
proto file; for stubs there is `proto/rerankd/v1`.

```sh
buf curl --http2-prior-knowledge --protocol grpc --data '{"query": "who wrote Middlemarch?", "passages": [{"text": "Rye bread."},
  {"text": "Middlemarch is a novel by George Eliot."}]}' http://127.0.0.1:50051/rerankd.v1.RerankService/Rerank
python -m grpc_tools.protoc -Iproto --python_out=. --grpc_python_out=. proto/rerankd/v1/*.proto   # stubs for Python
```"""


def plain(text):
    """A comment as Markdown: characters outside of `code` are shown as they are."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"[\\*<\[|]|\b_|_\b", r"\\\g<0>", part) for part in parts)


def code(text):
    return f"`{text}`".replace("|", "\\|")


def table(head, rows):
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def command_line(binary):
    sections, rows, queue = [], [], [[]]
    while queue:
        path = queue.pop(0)
        name, text = " ".join(["rerankd", *path]), subprocess.check_output([binary, *path, "--help"], text=True)
        sections.append(f"## {name}\n\n```text\n{text.strip()}\n```")
        if path:
            rows.append([f"[`{name}`](#{name.replace(' ', '-')})", plain(text.split("\n\n")[0].rstrip(".\n"))])
        # The commands precede the options: in groups, or below one heading.
        block = re.split(r"^(?:Options|Arguments):\n", text, flags=re.M)[0]
        queue[:0] = [[*path, one] for one in re.findall(r"^  ([a-z][\w-]*)  ", block, re.M) if one != "help"]
    intro = "# Command line\n\nAll commands with their options, as `--help` prints them."
    return "\n\n".join([intro, table(["command", "what it does"], rows), *sections]) + "\n"


def configuration():
    intro, *parts = re.split(r"^\[(\w+)\]\n", (ROOT / "src/config/defaults.toml").read_text(), flags=re.M)
    words = lambda comment: plain(re.sub(r"^# ?", "", comment, flags=re.M))
    out = ["# Configuration", words(intro)]
    for section, body in zip(parts[::2], parts[1::2]):
        keys = re.findall(r"((?:^#.*\n)*)^(\w+) = (.*)", body, re.M)
        out += [f"## {section}", "\n".join(f"- **`{key}`** = {code(value)}<br>\n  {words(note)}" for note, key, value in keys)]
    return "\n\n".join(out) + "\n"


def fields(schema):
    """The type of a JSON schema in words, with links to named types."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    for key in ("oneOf", "anyOf"):
        if key in schema and any("type" in one or "$ref" in one or "enum" in one for one in schema[key]):
            return " or ".join(dict.fromkeys(fields(one) for one in schema[key]))
    if "enum" in schema or "const" in schema:
        return ", ".join(code(json.dumps(one)) for one in schema.get("enum", [schema.get("const")]))
    kind = schema.get("type", "any")
    return f"array of {fields(schema['items'])}" if kind == "array" else " or ".join([kind] if isinstance(kind, str) else kind)


def limits(schema):
    words = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "maxLength": "characters: at most",
             "minItems": "entries: at least", "maxItems": "entries: at most", "default": "default"}
    return "".join(f" {word[0].upper()}{word[1:]} {code(json.dumps(schema[key]))}." for key, word in words.items() if key in schema)


def http():
    api = json.loads((ROOT / "crates/server/src/http/openapi.json").read_text())
    parts, statuses, paths, types, head = api["components"], {}, [], [], ["header", "type", "meaning"]
    kinds = lambda content: " or ".join(fields(kind["schema"]) for kind in content.values() if "schema" in kind)
    for path, methods in api["paths"].items():
        for method, one in methods.items():
            for status, answer in one["responses"].items():
                answer = parts["responses"].get(answer.get("$ref", "").rsplit("/", 1)[-1], answer)
                if status != "200":
                    statuses.setdefault(status, {})[answer["description"]] = None
            request, answer = kinds(one.get("requestBody", {}).get("content", {})), kinds(one["responses"]["200"].get("content", {}))
            paths.append([code(f"{method.upper()} {path}"), plain(one["summary"]), request, answer])
    headers = lambda found: [[code(name), fields(one["schema"]), plain(one["description"]) + limits(one["schema"])] for name, one in found]
    for name, schema in parts["schemas"].items():
        types += [f"### {name}", plain(schema.get("description", ""))]
        rows = [[code(key) + (" (required)" if key in schema.get("required", []) else ""), fields(one),
                 plain(one.get("description", "")) + limits(one)] for key, one in schema.get("properties", {}).items()]
        types.append(table(["field", "type", "meaning"], rows) if rows else f"Type: {fields(schema)}")
    out = ["# HTTP", plain(api["info"]["description"]) + " The server sends its OpenAPI document from `/openapi.json`.",
           "## Paths", table(["path", "what it does", "request", "answer"], paths),
           "## Request headers", table(head, headers((one["name"], one) for one in parts["parameters"].values() if one["in"] == "header")),
           "## Response headers", table(head, headers(parts["headers"].items())),
           "## Errors", table(["status", "meaning"], [[status, plain(" ".join(text))] for status, text in sorted(statuses.items())]),
           "## Types", *types]
    return "\n\n".join(part for part in out if part) + "\n"


def grpc():
    texts = {path: path.read_text() for path in sorted((ROOT / "proto/rerankd/v1").glob("*.proto"))}
    found = re.findall(r"^(?:message|enum) (\w+)", "\n".join(texts.values()), re.M)
    names = {name: f"[{name}](#{name.lower()})" for name in found}
    link = lambda kind: re.sub(r"\w+", lambda word: names.get(word[0], word[0]), kind).replace("<", "\\<")
    out = ["# gRPC", GRPC]
    for path, text in texts.items():
        comment, rows, kind, oneof = [], [], None, ""
        for line in map(str.strip, text.splitlines()):
            if line.startswith("//"):
                comment.append(line[2:])
                continue
            words, note = line.rstrip(" {;").split(), plain(" ".join(comment))
            if line.startswith("package"):
                out += [f"## {path.name}", note]
            elif line.startswith(("service ", "message ", "enum ")):
                kind, rows = words[0], []
                out += [f"### {words[1]}", note]
            elif line.startswith("oneof "):
                oneof = f" (one of `{words[1]}`)"
                rows += [[code(words[1]), "oneof", note]] if note else []
            elif line == "}" and oneof:
                oneof = ""
            elif line == "}" and kind:
                title = {"service": ["method", "messages"], "message": ["field", "type"], "enum": ["value", "number"]}[kind]
                out, kind = [*out, table([*title, "meaning"], rows) if rows else "No fields."], None
            elif line.startswith("rpc "):
                found = re.match(r"rpc (\w+)\((.*?)\) returns \((.*?)\)", line)
                rows.append([code(found[1]), f"{link(found[2])} → {link(found[3])}", note])
            elif kind and " = " in line:
                *kinds, name, _, number = words
                rows.append([code(name), number if kind == "enum" else link(" ".join(kinds)) + oneof, note])
            comment = []
    return "\n\n".join(part for part in out if part) + "\n"


def anchors(text):
    found, seen = set(), {}
    for title in re.findall(r"^#{1,6} +(.*?)(?: +#+)?$", re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.M | re.S), re.M):
        slug = re.sub(r"[^\w -]", "", re.sub(r"\]\([^)]*\)", "", title).strip().lower()).replace(" ", "-")
        seen[slug] = seen.get(slug, -1) + 1
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
    return found


def check_links():
    listed = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True)
    files = [name for name in listed.splitlines() if (ROOT / name).is_file()]
    texts = {name: (ROOT / name).read_text() for name in files if name.endswith(".md")}
    texts |= {str(PAGES / name): text for name, text in generated().items()}
    # The page of the command line needs the binary, so its anchors are not checked.
    command, broken, linked = str(PAGES / "command-line.md"), [], set()
    heads = {name: anchors(text) for name, text in texts.items()}
    for name, text in texts.items():
        body = re.sub(r"^ *(```|~~~).*?^ *\1", "", text, flags=re.M | re.S)
        body = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "code", body)
        for target in re.findall(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|^ *\[[^\]]+\]: +(\S+)", body, re.M):
            path, _, anchor = (target[0] or target[1]).partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            full = (ROOT / name).parent.joinpath(path).resolve() if path else ROOT / name
            page = str(full.relative_to(ROOT)) if full.is_relative_to(ROOT) else ""
            linked |= {page} if name == "docs/SUMMARY.md" else set()
            outside = name.startswith("docs/") and not page.startswith("docs/")
            if outside or page != command and page not in texts and not (page and full.exists()):
                broken.append(f"{name}: {path}: {'not in the book' if outside else 'no such file'}")
            elif anchor and page in texts and anchor not in heads[page]:
                broken.append(f"{name}: {path}#{anchor}: no such heading")
    pages = {page for page in texts if page.startswith("docs/")} - {"docs/SUMMARY.md"}
    broken += [f"docs/SUMMARY.md: does not name {page}" for page in pages - linked]
    for name in files:
        text = (ROOT / name).read_bytes().decode(errors="ignore")
        for page in set(re.findall(r"(?<![\w/.-])docs/[\w/-]+\.md", text)) - {command, *texts}:
            broken.append(f"{name}: {page}: no such file")
    return sorted(broken)


def generated(binary=None):
    pages = {"configuration.md": configuration(), "http.md": http(), "grpc.md": grpc()}
    return pages | ({"command-line.md": command_line(binary)} if binary else {})


match sys.argv[1:]:
    case ["--check-links"]:
        problems = check_links()
        sys.exit("\n".join([*problems, f"{len(problems)} broken links"]) if problems else 0)
    case [] | ["--binary", _] | ["--binary", _, "--out", _]:
        folder = Path(sys.argv[4]) if len(sys.argv) > 3 else ROOT / PAGES
        folder.mkdir(exist_ok=True)
        for file, page in generated(*sys.argv[2:3]).items():
            (folder / file).write_text(page.replace("\n", NOTE, 1))
    case _:
        sys.exit(__doc__)
