#!/usr/bin/env python3
"""Computes nDCG of the default's mixture if the generator reads only the first passages, from scores of all of them.

  rerankd rerank --lists LISTS --method embedding --passage-tokens 96 --format json > cosines.json
  rerankd rerank --lists LISTS --method query-generation --passage-tokens 96 --format json > gains.json
  scripts/frontier.py LISTS cosines.json gains.json [PLACES]

LISTS holds labelled lists with retriever scores, as `rerankd compare` reads them. Without the third stage. PLACES is the
cut-off of nDCG (10).
"""

import json
import math
import statistics
import sys

COUNTS = [0, 4, 6, 8, 10, 13, 16, 20]
# The weights and usual deviations of crates/engine/src/fusion/mixture.rs.
GENERATOR, EMBEDDING = 0.35, 0.6
USUAL_GAIN, USUAL_COSINE, USUAL_SIDE, USUAL_SCORE = 0.55, 0.165, 0.94, 0.3


def centre_and_spread(scores, usual):
    n = len(scores)
    mean = sum(scores) / n
    variance = sum((score - mean) ** 2 for score in scores) / n
    weight = 2 / n**2
    return mean, math.sqrt((n * variance + weight * usual**2) / (n + weight))


def standardised(scores, usual):
    mean, spread = centre_and_spread(scores, usual)
    return [(score - mean) / spread for score in scores]


def descending(scores):
    return sorted(range(len(scores)), key=lambda index: -scores[index])


def ranking(cosines, scores, gains, tokens, count):
    largest = max(abs(score) for score in scores)
    pairs = zip(standardised(cosines, USUAL_COSINE), standardised(scores, USUAL_SCORE * largest))
    side = [EMBEDDING * cosine + (1 - EMBEDDING) * score for cosine, score in pairs]
    order = descending(side)
    read = order[:count]
    if not read:
        return order
    gain = standardised([gains[index] for index in read], USUAL_GAIN * tokens)
    other = standardised([side[index] for index in read], USUAL_SIDE)
    values = [GENERATOR * one + (1 - GENERATOR) * two for one, two in zip(gain, other)]
    return [read[place] for place in descending(values)] + order[count:]


def ndcg(order, labels, places):
    gain = sum(labels[index] / math.log2(place + 2) for place, index in enumerate(order[:places]))
    ideal = sum(label / math.log2(place + 2) for place, label in enumerate(sorted(labels, reverse=True)[:places]))
    return gain / ideal


def utilities(path):
    answers = {}
    for line in open(path, encoding="utf-8"):
        if line.startswith("{"):
            answer = json.loads(line)
            index = {place.get("original_index", place.get("index")): place["utility"] for place in answer["results"]}
            answers[str(answer["query_id"])] = [index[number] for number in range(len(index))]
    return answers


def main(lists, cosines, gains, places="10"):
    cosines, gains, differences = utilities(cosines), utilities(gains), {count: [] for count in COUNTS}
    for line in open(lists, encoding="utf-8"):
        question = json.loads(line)
        key = str(question["id"])
        labels = [passage["label"] for passage in question["passages"]]
        if key not in gains or not any(labels):
            continue
        # About as many tokens as a tokenizer counts. The number matters for short lists only.
        tokens = max(1.0, 1.3 * len(question["question"].split()))
        scores = [passage["score"] for passage in question["passages"]]
        value = lambda count: ndcg(ranking(cosines[key], scores, gains[key], tokens, count), labels, int(places))
        for count in COUNTS:
            differences[count].append(value(count) - value(len(labels)))
    for count, found in differences.items():
        error = statistics.stdev(found) / math.sqrt(len(found))
        print(f"{count:3} read: {statistics.mean(found):+.4f} ± {error:.4f} ({len(found)} questions)")


if __name__ == "__main__":
    main(*sys.argv[1:])
