"""Values of tests/golden/citations/cases.json.

    git clone https://github.com/princeton-nlp/ALCE && git -C ALCE checkout 246c476
    pip install nltk numpy tqdm
    python tests/golden/citations/reference.py ALCE > tests/golden/citations/cases.json

Runs the citation evaluation of ALCE's eval.py with its entailment function replaced by a table, and beside it the definition of the
paper, written anew. Sentences are those of NLTK's Punkt with its default parameters.
"""

import contextlib
import importlib
import json
import random
import re
import sys
import types

from nltk.tokenize.punkt import PunktSentenceTokenizer


def stubs():
    """Modules that eval.py imports and the citation evaluation does not use."""
    for name, members in {
        "torch": ["float16"],
        "rouge_score": ["rouge_scorer", "scoring"],
        "transformers": ["AutoModelForSeq2SeqLM", "AutoTokenizer", "pipeline"],
    }.items():
        module = types.ModuleType(name)
        for member in members:
            setattr(module, member, object())
        sys.modules[name] = module
    nltk = importlib.import_module("nltk")
    nltk.sent_tokenize = PunktSentenceTokenizer().tokenize


def supports(table, passages, statement):
    """The verdict on a set of passages (from 0) and a statement (from 0)."""
    bits = sum(1 << passage for passage in set(passages))
    return table >> ((bits * 7 + statement * 13) % 64) & 1


def statement_of(text):
    return int(re.search(r"w(\d+)", text).group(1))


def program(evaluation, case):
    def verdict(premise, claim):
        passages = [int(number) for number in re.findall(r"passage (\d+)", premise)]
        return supports(case["table"], passages, statement_of(claim))

    evaluation.autoais_model = evaluation.autoais_tokenizer = object()
    evaluation._run_nli_autoais = verdict
    documents = [{"title": f"t{index}", "text": f"passage {index}"} for index in range(case["passages"])]
    item = {"question": "", "output": case["answer"], "docs": documents}
    with contextlib.redirect_stdout(sys.stderr):
        found = evaluation.compute_autoais([item])
    return found["citation_rec"] / 100, found["citation_prec"] / 100


def definition(case):
    """Recall and precision of the paper; the precision is None without citations."""
    recalled = precise = total = 0
    for cited in case["cited"]:
        statement = cited["statement"]
        numbers = sorted(set(cited["numbers"]), key=cited["numbers"].index)
        total += len(numbers)
        passages = [number - 1 for number in numbers]
        exist = passages and all(0 <= passage < case["passages"] for passage in passages)
        if not exist or not supports(case["table"], passages, statement):
            continue
        recalled += 1
        for passage in passages:
            others = [other for other in passages if other != passage]
            alone = supports(case["table"], [passage], statement)
            irrelevant = others and not alone and supports(case["table"], others, statement)
            precise += not irrelevant
    return recalled / len(case["cited"]), precise / total if total else None


def random_case(name, draw):
    cited, sentences = [], []
    for statement in range(draw.randint(1, 4)):
        numbers = draw.sample(range(1, 6), draw.randint(0, 4))
        # Now and then a passage that does not exist.
        if draw.random() < 0.1:
            numbers.append(7)
        brackets = "".join(f"[{number}]" for number in numbers)
        sentences.append(f"The statement w{statement} holds {brackets}.".replace(" .", "."))
        cited.append({"statement": statement, "numbers": numbers})
    return {"name": name, "answer": " ".join(sentences), "passages": 5, "table": draw.getrandbits(64), "cited": cited}


def by_hand(name, answer, *cited, passages=3, table=(1 << 64) - 1):
    cited = [{"statement": statement, "numbers": list(numbers)} for statement, numbers in enumerate(cited)]
    return {"name": name, "answer": answer, "passages": passages, "table": table, "cited": cited}


def cases():
    yield by_hand("one", "A fact w0 holds [1].", [1])
    yield by_hand("none", "A fact w0 holds. Another w1 too.", [], [])
    yield by_hand("refused", "A fact w0 holds [1][2].", [1, 2], table=0)
    yield by_hand("no such passage", "A fact w0 holds [9]. Another w1 too [2].", [9], [2])
    # Where the program reads otherwise.
    yield by_hand("twice", "A fact w0 holds [1][1][2].", [1, 2], table=1 << 21)
    yield by_hand("one bracket", "A fact w0 holds [9, 1]. Another w1 too [1, 2].", [9, 1], [1, 2])
    yield by_hand("number zero", "A fact w0 holds [0].", [0])
    yield by_hand("behind the stop", "A fact w0 holds. [1] Another w1 too. [2]", [1], [2])
    draw = random.Random(7)
    for number in range(200):
        yield random_case(f"random {number}", draw)


def main():
    stubs()
    sys.path.insert(0, sys.argv[1])
    evaluation = importlib.import_module("eval")
    evaluation.tqdm = lambda items: items
    lines = []
    for case in cases():
        try:
            case["program"] = program(evaluation, case)
        except AttributeError:
            # A "sentence" of citations alone.
            case["program"] = None
        case["definition"] = definition(case)
        # JSON numbers of 64 bits are not read by every parser.
        case["table"] = str(case["table"])
        del case["cited"]
        lines.append(json.dumps(case))
    print("[\n" + ",\n".join(lines) + "\n]")


main()
