"""Times `rerankd metrics` and pytrec_eval on the same files in turn, each as a separate program.

    python peer.py RERANKD QRELS RUN        both, five times in turn; medians as a JSON object
    python peer.py --evaluate QRELS RUN     pytrec_eval alone
"""

import json
import os
import statistics
import subprocess
import sys
import time

MEASURES = {"num_ret", "num_rel", "num_rel_ret", "map", "gm_map", "Rprec", "bpref", "recip_rank", "iprec_at_recall", "P"}
MEANS = ["map", "Rprec", "bpref", "recip_rank", "P_5", "P_10", "P_1000", "iprec_at_recall_0.10"]


def evaluate(qrels, run):
    import pytrec_eval

    with open(qrels) as file:
        judged = pytrec_eval.parse_qrel(file)
    with open(run) as file:
        ranked = pytrec_eval.parse_run(file)
    values = pytrec_eval.RelevanceEvaluator(judged, MEASURES).evaluate(ranked)
    print(json.dumps({name: sum(query[name] for query in values.values()) / len(values) for name in MEANS}))


def measured(command):
    started = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.PIPE)
    output = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    assert status == 0, command
    return time.monotonic() - started, usage.ru_maxrss / 1024, output


def main(binary, qrels, run):
    ours, peer = [], []
    for _ in range(5):
        ours.append(measured([binary, "metrics", qrels, run, "-m", "official", "--format", "json", "--resamples", "0"]))
        peer.append(measured([sys.executable, __file__, "--evaluate", qrels, run]))
    names = {"map": "AP", "recip_rank": "RR", "bpref": "Bpref", "iprec_at_recall_0.10": "IPrec@0.1"}
    found = json.loads(ours[0][2])["runs"][0]["metrics"]
    expected = json.loads(peer[0][2])
    gaps = [abs(found[names.get(name, name.replace("_", "@"))]["value"] - expected[name]) for name in MEANS]
    middle = lambda rows, at: statistics.median(row[at] for row in rows)
    print(json.dumps({
        "ours_seconds": middle(ours, 0), "ours_mib": middle(ours, 1),
        "peer_seconds": middle(peer, 0), "peer_mib": middle(peer, 1), "largest_difference": max(gaps),
    }))


if sys.argv[1] == "--evaluate":
    evaluate(*sys.argv[2:])
else:
    main(*sys.argv[1:])
