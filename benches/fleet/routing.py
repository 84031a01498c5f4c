"""Simulates the hit rate of the passage caches of several servers, by the rule that chooses a server for a request.

    python3 benches/fleet/routing.py LISTS.jsonl.gz ...

LISTS are recorded candidate lists, JSON lines with `question` and `passages`, each with `id` and `score`. Files of one
collection, whose names agree up to the first hyphen, are one trace. A last trace is made up: questions to one document
each. The rules are round robin, and rendezvous hashing of a key of the request with a bounded load (Mirrokni et al.,
2018): a server that had its share of the last requests and a quarter more is passed over.
"""

import argparse
import collections
import gzip
import hashlib
import heapq
import itertools
import json
import pathlib
import random

# Passages of 110 tokens of the default generator in 512 MiB, and in 4 GiB.
ROOMS = [200, 1600]
SERVERS = [1, 4, 16]
BOUND = 1.25
# Requests per server over which the load is bounded: about as many as clients have in flight.
WINDOW = 16


class Store:
    """The server's passage cache, over passages of one size (crates/prefix-scheduler/src/warm/policy.rs)."""

    def __init__(self, room):
        self.room, self.sights = room, 0
        self.frequencies = collections.Counter()
        self.order = []
        self.cached = set()

    def see(self, passage):
        """Count a passage and cache it if the policy allows. True if it was cached."""
        self.sights += 1
        if self.sights >= max(4096, 24 * len(self.cached)):
            self.sights = 0
            self.frequencies = collections.Counter({key: count // 2 for key, count in self.frequencies.items()})
            self.order = [(self.frequencies[key], key) for key in self.cached]
            heapq.heapify(self.order)
        self.frequencies[passage] += 1
        frequency = self.frequencies[passage]
        if passage in self.cached:
            return True
        if len(self.cached) == self.room:
            # Priorities in the heap may be old: a passage that was used since goes back with its present one.
            while self.order[0][0] != self.frequencies[self.order[0][1]]:
                _, key = heapq.heappop(self.order)
                heapq.heappush(self.order, (self.frequencies[key], key))
            if frequency < 2 or self.order[0][0] >= frequency:
                return False
            self.cached.remove(heapq.heappop(self.order)[1])
        self.cached.add(passage)
        heapq.heappush(self.order, (frequency, passage))
        return False


def number(*parts):
    return int.from_bytes(hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest(), "big")


KEYS = {
    "query": lambda question, passages: question,
    "first passage": lambda question, passages: passages[0],
    "least hash of the passages": lambda question, passages: min(passages, key=number),
}


def simulate(trace, servers, room, key):
    """The hit rate, and the load of the fullest server in multiples of the mean."""
    stores = [Store(room) for _ in range(servers)]
    loads, recent, window = [0] * servers, collections.deque(), [0] * servers
    ranks, turn, hits, sights = {}, itertools.cycle(range(servers)), 0, 0
    for question, passages in trace:
        if key is None:
            chosen = next(turn)
        else:
            found = key(question, passages)
            if found not in ranks:
                ranks[found] = sorted(range(servers), key=lambda server: number(server, found))
            limit = BOUND * WINDOW
            chosen = next(server for server in ranks[found] if window[server] < limit)
        loads[chosen] += 1
        window[chosen] += 1
        recent.append(chosen)
        if len(recent) > WINDOW * servers:
            window[recent.popleft()] -= 1
        sights += len(passages)
        hits += sum(stores[chosen].see(passage) for passage in passages)
    return hits / sights, max(loads) * servers / len(trace)


def once(lists, seed):
    """Every question once."""
    return random.Random(seed).sample(lists, len(lists))


def again(lists, seed):
    """10,000 requests, whose questions come again as often as in Zipf's law."""
    weights = [1 / rank for rank in range(1, len(lists) + 1)]
    return random.Random(seed).choices(once(lists, seed), weights, k=10_000)


def documents(_, seed):
    """10,000 questions, each to 20 of the 40 passages of one of 2,000 documents, which Zipf's law chooses."""
    draw = random.Random(seed)
    chosen = draw.choices(range(2_000), [1 / rank for rank in range(1, 2_001)], k=10_000)
    return [(document, [(document, at) for at in draw.sample(range(40), 20)]) for document in chosen]


def read(paths):
    found = collections.defaultdict(list)
    for path in paths:
        with gzip.open(path, "rt") as lines:
            for line in map(json.loads, lines):
                # Lists for training begin with the relevant passage, without a score if BM25 did not find it.
                passages = sorted(line["passages"], key=lambda passage: -(passage["score"] or 0))
                found[path.name.partition("-")[0]].append((line["question"], [p["id"] for p in passages]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", nargs="+", type=pathlib.Path, metavar="LISTS")
    parser.add_argument("--seeds", type=int, default=3, help="traces that are averaged")
    given = parser.parse_args()
    recorded = read(given.lists)
    cases = [(name, kind, lists) for name, lists in recorded.items() for kind in (once, again)]
    for name, kind, lists in [*cases, ("documents", documents, [])]:
        found = [kind(lists, seed) for seed in range(given.seeds)]
        different = len({passage for _, passages in found[0] for passage in passages})
        print(f"\n{name}, {kind.__doc__} {len(found[0])} requests, {different} different passages", flush=True)
        # The document is the first part of a request of the last trace.
        keys = {"document": KEYS["query"]} if kind is documents else {}
        for room, servers in itertools.product(ROOMS, SERVERS):
            cells = []
            for rule, key in {"round robin": None, **(keys or KEYS)}.items():
                if servers > 1 or not key:
                    runs = [simulate(trace, servers, room, key) for trace in found]
                    rate, load = (sum(values) / len(values) for values in zip(*runs, strict=True))
                    cells.append(f"{rule} {rate:.3f} ({load:.2f})")
            print(f"{room} passages, {servers} servers: {', '.join(cells)}", flush=True)


main()
