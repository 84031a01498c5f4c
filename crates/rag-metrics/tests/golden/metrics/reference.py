"""Values of independent programs for tests/golden/metrics.rs.

    pip install pytrec-eval-terrier ir-measures ranx scipy; pip install --no-deps erag
    python tests/golden/metrics/reference.py tests/golden/metrics

Writes runs.jsonl.gz (pytrec_eval, ir_measures, gdeval and ranx on random runs), labels.json (erag), agreement.json and
recall.json (scipy). Seeded: a second run writes the same.
"""

import gzip
import json
import random
import sys
from pathlib import Path

import erag
import ir_measures
import numpy as np
import pytrec_eval
from ranx import Qrels, Run, evaluate
from scipy import stats

out = Path(sys.argv[1])
rng = random.Random(5)

TREC = {
    "P_5": "P_5", "P_10": "P_10", "recall_5": "recall_5", "recall_10": "recall_10", "map": "map", "map_cut_5": "map_cut_5",
    "recip_rank": "recip_rank", "ndcg": "ndcg", "ndcg_cut_5": "ndcg_cut_5", "ndcg_cut_10": "ndcg_cut_10",
    "success_1": "success_1", "success_5": "success_5", "Rprec": "Rprec", "bpref": "bpref", "infAP": "infAP",
    "iprec_at_recall_0.00": "iprec_at_recall_0.00", "iprec_at_recall_0.10": "iprec_at_recall_0.10",
    "iprec_at_recall_0.50": "iprec_at_recall_0.50", "iprec_at_recall_1.00": "iprec_at_recall_1.00", "11pt_avg": "11pt_avg",
    "set_P": "set_P", "set_recall": "set_recall", "set_F": "set_F", "set_map": "set_map", "num_ret": "num_ret",
    "num_rel": "num_rel", "num_rel_ret": "num_rel_ret",
}
IR = [
    "P(rel=2)@5", "P@3", "AP(rel=2)", "AP(rel=2)@3", "RR(rel=2)", "R(rel=2)@5", "Rprec(rel=2)", "Bpref(rel=2)", "nDCG@3", "nDCG",
    "Success(rel=2)@3", "SetF(beta=2.0)", "SetP(rel=2)", "SetR(rel=2)", "SetAP(rel=2)", "P(judged_only=True)@5",
    "AP(judged_only=True)", "nDCG(judged_only=True)@5", "RR(judged_only=True)", "Judged@3", "Judged@10", "NumRet", "NumRel",
    "IPrec@0.2", "RR@3",
]
# gdeval prints five digits.
GDEVAL = ["ERR@5", "ERR@20", "nDCG(dcg='exp-log2')@5"]
# ranx orders ties in its own way, so it sees only runs without.
RANX = ["precision@5", "recall@5", "map", "mrr", "ndcg@5", "ndcg_burges@5", "hit_rate@5", "hits@5", "f1@5", "r-precision", "rbp.80",
        "map@5", "mrr@2"]


def random_query(kind):
    documents = [f"d{n}" for n in rng.sample(range(100), rng.randint(1, 14))]
    levels = {"binary": [0, 1], "graded": [0, 0, 1, 2, 3], "pooled": [-1, 0, 1, 2]}["binary" if kind % 10 < 4 else "graded" if kind % 10 < 8 else "pooled"]
    if kind % 17 == 0:
        levels = [0]
    qrel = {doc: rng.choice(levels) for doc in documents if rng.random() < 0.7}
    for n in rng.sample(range(100, 120), rng.randint(0, 6)):
        qrel[f"d{n}"] = rng.choice(levels)
    if not qrel:
        qrel = {"d200": 1}
    ties = kind % 3
    scores = {0: lambda: rng.uniform(-3, 3), 1: lambda: rng.choice([0.5, 0.25, -1.0]), 2: lambda: 7.0 + rng.randint(0, 4) * 1e-8}[ties]
    run = {doc: scores() for doc in documents}
    if kind % 23 == 0:
        run = {}
    return run, qrel, ties == 0


queries = [random_query(kind) for kind in range(2300)]
qrels = {str(n): qrel for n, (_, qrel, _) in enumerate(queries)}
runs = {str(n): run for n, (run, _, _) in enumerate(queries) if run}
values = [{} for _ in queries]
families = {"P.3,5,10", "recall.5,10", "map", "map_cut.5", "recip_rank", "ndcg", "ndcg_cut.5,10", "success.1,5", "Rprec", "bpref", "infAP",
            "iprec_at_recall.0.00,0.10,0.50,1.00", "11pt_avg", "set_P", "set_recall", "set_F", "set_map", "num_ret", "num_rel",
            "num_rel_ret"}
for qid, found in pytrec_eval.RelevanceEvaluator(qrels, families).evaluate(runs).items():
    for ours, theirs in TREC.items():
        values[int(qid)][ours] = found[theirs]
parsed = {ir_measures.parse_measure(name): name for name in IR}
for one in ir_measures.iter_calc(list(parsed), qrels, runs):
    # Counts of ir_measures are of runs that exist; a query without a run is 0 in all else.
    values[int(one.query_id)][parsed[one.measure]] = one.value
gdeval = {ir_measures.parse_measure(name): name for name in GDEVAL}
whole = {qid: {doc: max(rel, 0) for doc, rel in qrel.items()} for qid, qrel in qrels.items()}
for one in ir_measures.providers.registry["gdeval"].iter_calc(list(gdeval), whole, runs):
    values[int(one.query_id)]["~" + gdeval[one.measure]] = one.value
untied = [n for n, (run, qrel, free) in enumerate(queries) if run and free and any(rel > 0 for rel in qrel.values())]
clean_qrels = Qrels({str(n): {d: max(r, 0) for d, r in queries[n][1].items()} for n in untied})
clean_runs = Run({str(n): queries[n][0] for n in untied})
evaluate(clean_qrels, clean_runs, RANX, make_comparable=True)
for name in RANX:
    for qid, value in clean_runs.scores[name].items():
        # ranx weighs RBP by the label and so leaves [0, 1] with graded ones; ours counts relevant or not.
        if name != "rbp.80" or max(queries[int(qid)][1].values()) <= 1:
            values[int(qid)]["ranx:" + name] = value

with gzip.GzipFile(out / "runs.jsonl.gz", "wb", mtime=0) as file:
    for (run, qrel, _), found in zip(queries, values):
        rounded = {name: float(f"{value:.12g}") for name, value in found.items()}
        line = {"run": [[d, s] for d, s in run.items()], "qrels": qrel, "values": rounded}
        file.write((json.dumps(line, separators=(",", ":")) + "\n").encode())

cases = []
# What erag accepts: pytrec_eval's names for binary labels, its own two for graded ones.
BINARY = ["P_1", "P_5", "success_1", "success_5", "map", "recip_rank", "ndcg", "ndcg_cut_5", "recall_5"]
GRADED = ["P_1", "P_5", "success_1", "success_5", "P", "success"]
for graded in [False, True]:
    for _ in range(100):
        labels = [rng.choice([0, 1]) if not graded else round(rng.random(), 3) for _ in range(rng.randint(5, 12))]
        texts = [f"p{n}" for n in range(len(labels))]
        of_text = dict(zip(texts, labels))
        usable = GRADED if graded else BINARY
        result = erag.eval({"q": texts}, {"q": ["x"]}, lambda one: {q: d[0] for q, d in one.items()},
                           lambda got, _: {q: of_text[text] for q, text in got.items()}, set(usable))
        cases.append({"labels": labels, "values": result["per_input"]["q"]})
refused = []
for name, labels in [("ndcg", [0.5, 1.0]), ("map", [0.5, 1.0]), ("recip_rank", [0.5, 0.0]), ("P_5", [0.5, 0.25]), ("success_5", [0.5])]:
    texts = [f"p{n}" for n in range(len(labels))]
    of_text = dict(zip(texts, labels))
    try:
        erag.eval({"q": texts}, {"q": ["x"]}, lambda one: {q: d[0] for q, d in one.items()},
                  lambda got, _: {q: of_text[text] for q, text in got.items()}, {name})
        raise SystemExit(f"{name} {labels} was not refused")
    except (RuntimeError, KeyError) as error:
        refused.append({"metric": name, "labels": labels, "error": type(error).__name__})
(out / "labels.json").write_text(json.dumps({"cases": cases, "refused": refused}) + "\n")

pairs = []
for n in [2, 3, 4, 5, 7, 10, 20, 33, 34, 50, 120]:
    for ties in [0, 3, 8]:
        for _ in range(4):
            x = [rng.gauss(0, 1) if not ties else float(rng.randint(0, ties)) for _ in range(n)]
            y = [rng.gauss(0, 1) + 0.4 * v if not ties else float(max(0, round(v + rng.gauss(0, 2)))) for v in x]
            pairs.append((x, y))
pairs += [([float(i) for i in range(40)], [float(i) for i in range(40)]), ([float(i) for i in range(40)], [1.0, 0.0] + [float(i) for i in range(2, 40)])]
rows = []
for x, y in pairs:
    constant = len(set(x)) == 1 or len(set(y)) == 1
    row = {"x": x, "y": y}
    if not constant:
        for name, of in [("tau_b", lambda: stats.kendalltau(x, y)), ("tau_c", lambda: stats.kendalltau(x, y, variant="c")),
                         ("rho", lambda: stats.spearmanr(x, y)), ("r", lambda: stats.pearsonr(x, y))]:
            value = of()
            p = float(value.pvalue)
            row[name] = [float(value.statistic), None if np.isnan(p) else p]
    rows.append(row)
(out / "agreement.json").write_text(json.dumps(rows) + "\n")

grid = sorted({0.0, 1.0} | {0.95**i for i in range(1, 351)} | {1 - 0.95**i for i in range(1, 351)})
studies = []
for _ in range(6):
    samples = []
    for _ in range(60):
        k = rng.randint(1, 8)
        marks = [int(rng.random() < 0.5) for _ in range(2 * k if rng.random() < 0.8 else 2 * k - 1)]
        total = sum(marks) + rng.randint(0, 3)
        score = max(1, min(5, round(sum(marks[:k]) - 0.3 * (k - sum(marks[:k])) + rng.gauss(1, 1))))
        samples.append({"marks": marks, "k": k, "all": total, "response": score})
    chosen = {}

    def measure(name, s, alpha):
        hit = sum(s["marks"][: s["k"]])
        if name == "T":
            return (1 - alpha) * hit - alpha * (s["k"] - hit) / s["k"]
        if name == "T'":
            return (1 - alpha) * hit - alpha * (s["k"] - hit)
        if name == "Fe" and len(s["marks"]) < 2 * s["k"]:
            return None
        total = s["all"] if name == "F" else sum(s["marks"][: 2 * s["k"]])
        below = alpha * s["k"] + (1 - alpha) * total
        return hit / below if below > 0 else None

    for name in ["F", "Fe", "T", "T'"]:
        for correlation, of in [("spearman", lambda x, y: stats.spearmanr(x, y).statistic), ("pearson", lambda x, y: stats.pearsonr(x, y).statistic),
                                ("kendall_b", lambda x, y: stats.kendalltau(x, y).statistic), ("kendall_c", lambda x, y: stats.kendalltau(x, y, variant="c").statistic)]:
            best = None
            for alpha in grid:
                both = [(measure(name, s, alpha), s["response"]) for s in samples]
                both = [(round(m, 12), r) for m, r in both if m is not None]
                value = float(of([m for m, _ in both], [r for _, r in both]))
                if not np.isnan(value) and (best is None or value > best):
                    best = value
            at = {str(a): [measure(name, s, a) for s in samples] for a in [0.0, 0.3, 1.0]}
            chosen[f"{name}/{correlation}"] = {"best": best, "at": at if correlation == "spearman" else None}
    studies.append({"samples": samples, "chosen": chosen})
(out / "recall.json").write_text(json.dumps(studies) + "\n")
