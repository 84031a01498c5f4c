"""The question and the documents of all checks, and their count."""

import dataclasses
import time
import traceback

QUESTION = "Who wrote Middlemarch?"
TEXTS = ["Middlemarch appeared in eight parts.", "Bananas are yellow.", "George Eliot wrote Middlemarch in 1871."]
BEST = 2

SUBJECTS = ["castle", "bakery", "library", "harbour", "orchard", "railway", "theatre"]
EVENTS = [
    "opened after three years of repairs.",
    "is described in the third chapter of Middlemarch.",
    "was painted by an unknown artist.",
    "closed when the river rose.",
    "belonged to a family of writers.",
    "is the oldest building of the town.",
]
# More than a batch of any client.
MANY = [f"The {subject} {event}" for event in EVENTS for subject in SUBJECTS] + TEXTS

# Passages of a usual length, about 96 tokens each. Five seconds, the time-out of httpx, are short for them on a CPU.
_MORE = "It says so on page {at}, and again on page {at} of the second volume, which the library keeps beside the door."
HUNDRED = [" ".join([text, *[_MORE.format(at=at)] * 4]) for at, text in enumerate((MANY * 3)[:100])]


@dataclasses.dataclass
class Servers:
    """Addresses of the servers: one that requires a token, and one without tokens that bounds the time of a ranking."""

    grpc: str
    http: str
    token: str
    open_grpc: str
    open_http: str


class Checks:
    """Runs checks and counts the failed ones."""

    def __init__(self):
        self.passed = self.failed = 0

    def __call__(self, name, check):
        began = time.monotonic()
        try:
            check()
        except Exception:  # noqa: BLE001: every failure is one of the check
            self.failed += 1
            print(f"FAILED  {name}\n{traceback.format_exc()}", flush=True)
        else:
            self.passed += 1
            print(f"ok      {name} ({time.monotonic() - began:.1f} s)", flush=True)


def within_its_time(check):
    """A client that gives up after five seconds is tried three times: a machine may be busy for a moment."""
    for attempt in range(3):
        try:
            return check()
        except Exception as error:  # noqa: BLE001: each client has its own error
            if attempt == 2 or "timed out" not in str(error).lower():
                raise


def same(found, expected):
    if found != expected:
        raise AssertionError(f"{found!r}, expected {expected!r}")


def descending(scores):
    scores = list(scores)
    assert scores == sorted(scores, reverse=True) and len(scores) > 1, scores
