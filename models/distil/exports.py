"""Reads the files of `rerankd distil export`. Needs nothing but Python.

docs/how-to/distil.md describes the fields. Every line is checked against its checksum, so a file that was changed
or cut off is refused, not trained on.
"""

import dataclasses
import hashlib
import json

FORMAT = 1
MARK = '{"rerankd_distil":'
SEAL = ',"sum":"'
DIGITS = 16


class ExportError(Exception):
    """A file that cannot be used. The text names the file."""


@dataclasses.dataclass(frozen=True)
class Question:
    """A question with the tokens of its prompts and the scores of one generator, in nats."""

    id: str
    data: str  # fingerprint of question and passages; equal in the exports of teacher and student
    text: str
    passage_ids: list
    labels: list
    passages: list  # tokens of each passage
    query: list  # tokens of the query
    orders: list  # each a list of indices of passages
    query_after_order: list  # log P(query | order)
    passages_in_order: list  # log P(passages of the order)
    query_after_passage: list  # log P(query | passage)
    query_alone: float | None  # log P(query)
    cut: bool  # whether a passage was cut to the token bound

    def order_scores(self, part):
        """The scores of the orders: `query`, log P(query | order), or `joint`, with log P(order) (Lee et al., Eq. 3)."""
        if part == "query":
            return list(self.query_after_order)
        return [query + passages for query, passages in zip(self.query_after_order, self.passages_in_order)]


@dataclasses.dataclass(frozen=True)
class Export:
    """A whole file."""

    path: str
    header: dict
    questions: list
    sha256: str
    refused: int  # questions that rerankd refused

    @property
    def opening(self):
        return self.header["opening_tokens"]

    @property
    def cue(self):
        return self.header["cue_tokens"]

    def refuse_other_generator(self, path, sha256):
        """Refuses an export that is not of the model file at `path` alone, whose SHA-256 is given."""
        exported = self.header["generator_sha256"]
        if exported != sha256:
            raise ExportError(f"{self.path}: is of generator {exported}, {path} is {sha256}")
        if self.header.get("adapter"):
            raise ExportError(f"{self.path}: is of the generator with an adapter; export it without")


def seal(before, body):
    """The checksum of a line: `body` is the line up to its own sum, `before` the sum of the line before."""
    return hashlib.sha256((before + body).encode()).hexdigest()[:DIGITS]


def read(path):
    """Reads an export, which must be complete to its last line end."""
    digest, before, header, questions, refused = hashlib.sha256(), "", None, [], 0
    with open(path, "rb") as file:
        for number, raw in enumerate(file, 1):
            digest.update(raw)

            def bad(problem):
                return ExportError(f"{path}:{number}: {problem}")

            tail = len(SEAL) + DIGITS + 2
            try:
                line = raw.decode()
            except UnicodeDecodeError:
                raise bad("is not UTF-8") from None
            if header is None and not line.startswith(MARK) and not MARK.startswith(line):
                raise bad("is not an export")
            if not line.endswith('"}\n'):
                raise bad("is incomplete; the export's own command continues it")
            body, written = line[: -tail - 1], line[-DIGITS - 3 : -3]
            if line[-tail - 1 :] != f'{SEAL}{written}"}}\n' or written != seal(before, body):
                raise bad("is damaged: its checksum is another one")
            before = written
            value = json.loads(line)
            if header is None:
                if value.get("rerankd_distil") != FORMAT:
                    raise bad(f"format {value.get('rerankd_distil')}, this program reads {FORMAT}")
                header = value
            elif "error" in value:
                refused += 1
            else:
                questions.append(question(value))
    if header is None:
        raise ExportError(f"{path}: is empty")
    return Export(str(path), header, questions, digest.hexdigest(), refused)


def question(value):
    return Question(
        id=value["id"],
        data=value["data"],
        text=value["question"],
        passage_ids=[passage["id"] for passage in value["passages"]],
        labels=[passage["label"] for passage in value["passages"]],
        passages=[passage["tokens"] for passage in value["passages"]],
        query=value["query_tokens"],
        orders=value.get("orders", []),
        query_after_order=value.get("query_after_order", []),
        passages_in_order=value.get("passages_in_order", []),
        query_after_passage=value.get("query_after_passage", []),
        query_alone=value.get("query_alone"),
        cut=any(passage.get("tokens_cut", 0) > 0 for passage in value["passages"]),
    )


def pairs(teacher, student):
    """The questions that both exports have, as (teacher's, student's), in the order of the student's.

    Question and passages must be the same. Tokens may differ, because the two may have different vocabularies; where a passage was cut,
    the two may then have read different text (`Question.cut`).
    """
    for key in ("template_version", "max_passage_tokens"):
        if teacher.header[key] != student.header[key]:
            told = f"{teacher.header[key]} in {teacher.path}, {student.header[key]} in {student.path}"
            raise ExportError(f"{key}: {told}")
    taught = {question.id: question for question in teacher.questions}
    found = []
    for own in student.questions:
        other = taught.get(own.id)
        if other is None:
            continue
        if other.data != own.data:
            raise ExportError(f"{student.path}: question {own.id!r} or its passages are not those of {teacher.path}")
        found.append((other, own))
    if not found:
        raise ExportError(f"{student.path} and {teacher.path} have no question in common")
    return found


def part_of(identifier, seed):
    """A number from 0 to 1 that a question's id and the seed determine: which part of the data it belongs to.

    It does not depend on the other questions, so a question stays in its part when the export grows.
    """
    digest = hashlib.sha256(f"{seed} {identifier}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def mark(question):
    """Twelve hexadecimal digits that stand for a question, whatever passages it came with. An adapter keeps those it was trained on."""
    return hashlib.sha256(json.dumps([question.id, question.text]).encode()).hexdigest()[:12]


def held_out(export, pairs, recipe, trained):
    """Those of the pairs (teacher's, student's) whose question was not trained on.

    Of the export that the recipe names they are taken out. Another export must not have any, because its maker took it for new data.
    """
    kept = [pair for pair in pairs if mark(pair[1]) not in trained]
    if len(kept) < len(pairs) and recipe.get("student_sha256") != export.sha256:
        known = next(own.id for _, own in pairs if mark(own) in trained)
        raise ExportError(f"{export.path}: {len(pairs) - len(kept)} questions were trained on, such as {known!r}")
    if not kept:
        raise ExportError(f"{export.path}: all questions were trained on")
    return kept


def cut(pairs):
    """How many of the pairs (teacher's or None, student's) have a passage that was cut: its two texts may end at different places."""
    return sum(own.cut or (other is not None and other.cut) for other, own in pairs)
