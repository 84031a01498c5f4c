"""Mixture of Interventions under a llama-architecture GGUF file, naively and without rerankd.

Prompts and forward passes are those of methods.py. The fits minimise the formula of docs/reference/methods.md over
weights and utilities at once, by scipy's SLSQP from several starts. All orders of three passages are scored, so nothing is drawn: the design of the server is
`RANDOM`, which has no more than these six.

  pip install gguf numpy scipy tokenizers
  python moi.py MODEL.gguf < methods.json > moi.json
"""

import itertools
import json
import sys

import numpy as np
from methods import Model, Prompts
from scipy.optimize import minimize

SIGMA2 = 0.5
# Passages of the fits.
N = 3


def winsor(scores):
    centre = np.median(scores)
    reach = 3 * 1.4826 * np.median(np.abs(scores - centre))
    return np.clip(scores, centre - reach, centre + reach) if reach > 0 else scores


def geometric(length):
    profile = 8.0 ** (-np.arange(length) / (length - 1))
    return profile / profile.sum()


def solve(rows, values, priors):
    """The least squares of docs/reference/methods.md. `rows` are orders, `priors` the prior weights of each length.
    Returns the objective, the utilities and the weights by length."""
    lengths = sorted(priors)
    diffuse = np.mean([np.sum(priors[len(order)] ** 2) - 1 / N for order in rows])
    lam = SIGMA2 / (1 - SIGMA2) * diffuse
    rho = {length: 11 * SIGMA2 * length**2 for length in lengths}

    def unpack(x):
        utilities, at, weights, constants = x[:N], N, {}, {}
        for length in lengths:
            weights[length], at = x[at : at + length], at + length
        # The shortest prompts have no constant: the mean utility takes its place.
        for length in lengths[1:]:
            constants[length], at = x[at], at + 1
        return utilities, weights, constants

    def objective(x):
        utilities, weights, constants = unpack(x)
        predicted = [constants.get(len(o), 0.0) + np.dot(weights[len(o)], utilities[list(o)]) for o in rows]
        pull = sum(rho[length] * np.sum((weights[length] - priors[length]) ** 2) for length in lengths)
        return np.sum((predicted - values) ** 2) + lam * np.sum((utilities - utilities.mean()) ** 2) + pull

    sums = [{"type": "eq", "fun": lambda x, length=length: unpack(x)[1][length].sum() - 1} for length in lengths]
    free = len(lengths) - 1
    bounds = [(None, None)] * N + [(0, 1)] * sum(lengths) + [(None, None)] * free
    source, best = np.random.default_rng(0), None
    for start in range(12):
        weights = [priors[length] if start == 0 else source.dirichlet(np.ones(length)) for length in lengths]
        x = np.concatenate([source.normal(size=N), *weights, np.zeros(free)])
        found = minimize(objective, x, method="SLSQP", bounds=bounds, constraints=sums, options={"ftol": 1e-14, "maxiter": 500})
        if best is None or found.fun < best.fun:
            best = found
    utilities, weights, _ = unpack(best.x)
    return best.fun, utilities, weights


def told(objective, utilities, weights, scale, score, none):
    """Utilities in nats. Their mean is that of the scores of single passages over the score of none."""
    level = np.mean([score[i,] for i in range(N)]) - none
    return {
        "objective": round(float(objective), 6),
        "utilities": [round(float(u), 6) for u in (utilities - utilities.mean()) * scale + level],
        "bias": [[round(float(a), 6) for a in weights[length]] for length in sorted(weights)],
        "nats_a_unit": round(float(scale), 6),
    }


def whole_orders(score, none):
    """Six orders of all passages. The scores of single passages choose between the two directions of the prior."""
    rows = list(itertools.permutations(range(N)))
    raw = winsor(np.array([score[order] for order in rows]))
    scale = raw.std()
    values = (raw - raw.mean()) / scale
    alone = [score[i,] for i in range(N)]
    fits = [solve(rows, values, {N: prior}) for prior in (geometric(N), geometric(N)[::-1])]
    agreement = [float(np.corrcoef(fit[1], alone)[0, 1]) for fit in fits]
    chosen = fits[1] if agreement[1] > agreement[0] else fits[0]
    return told(*chosen, scale, score, none) | {"agreement": [round(a, 6) for a in agreement]}


def with_beginnings(score, none):
    """Every beginning of the six orders, once. Each length is centred, all share one scale; the prior is equal weights."""
    rows = [order for length in range(1, N + 1) for order in itertools.permutations(range(N), length)]
    means = {length: np.mean([score[o] for o in rows if len(o) == length]) for length in range(1, N + 1)}
    centred = np.array([score[order] - means[len(order)] for order in rows])
    scale = centred.std()
    fit = solve(rows, centred / scale, {length: np.full(length, 1 / length) for length in range(1, N + 1)})
    return told(*fit, scale, score, none)


def main():
    asked = json.load(sys.stdin)
    p = Prompts(Model(sys.argv[1]), asked["query"], asked["passages"])
    orders = [order for length in range(1, N + 1) for order in itertools.permutations(range(N), length)]
    score, none = {order: p.likelihood(list(order)) for order in orders}, p.likelihood([])
    result = {
        "scores": {" ".join(map(str, order)): round(value, 6) for order, value in score.items()},
        "none": round(none, 6),
        "whole_orders": whole_orders(score, none),
        "with_beginnings": with_beginnings(score, none),
    }
    json.dump(result, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
