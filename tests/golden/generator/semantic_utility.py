"""Semantic utility under a llama-architecture GGUF file and an entailment network, without rerankd.

Prompts, weights and tokenizer come from methods.py, verdicts from ../belief/reference.py. numpy draws the answers with
other random numbers than the server. `mean` and `deviation` are over REPEATS whole measurements, and the server's mean
over seeds has to lie within the error of both. `example` is the first measurement, with its answers and verdicts, from
which a test computes its utilities again.

  pip install gguf numpy onnx onnxruntime==1.31.1 tokenizers
  python semantic_utility.py MODEL.gguf policy_nli_int8.onnx tokenizer.json < methods.json > semantic_utility.json
"""

import json
import sys
from pathlib import Path

import numpy as np
from methods import Model, Prompts

sys.path.insert(0, str(Path(__file__).parent / "../belief"))
from reference import Judge, clusters, softmax, strict

PASSAGES, COUNT, MOST, REPEATS, SEED = 3, 10, 64, 10, 1
STOPS = [b"\n", b"Question:", b"Context:"]


class Drawer:
    """Draws many continuations of one prompt at once; keys and values of the prompt are computed once."""

    def __init__(self, model, prompt):
        self.model, self.length = model, len(prompt)
        self.prompt = [None] * model.layers
        self.row = self.step(np.array([prompt]), self.prompt, 0)[0]

    def step(self, tokens, kept, start):
        """Log-probabilities after the last column of `tokens` (one row per continuation). `kept` holds keys and values of the tokens
        before, for each layer, and is extended."""
        model, weight = self.model, self.model.weights
        x = weight["token_embd.weight"][tokens]
        count, length, width = x.shape
        size, groups = width // model.heads, model.heads // model.kv_heads
        angle = np.arange(start, start + length)[:, None] * model.base ** (-np.arange(0, size, 2) / size)[None, :]
        cos, sin = (f(angle)[None, :, None, :].astype(np.float32) for f in (np.cos, np.sin))

        def rotate(v):
            out = np.empty_like(v)
            out[..., 0::2] = v[..., 0::2] * cos - v[..., 1::2] * sin
            out[..., 1::2] = v[..., 0::2] * sin + v[..., 1::2] * cos
            return out

        norm = lambda v, name: v / np.sqrt((v * v).mean(-1, keepdims=True) + model.epsilon) * weight[name]
        later = np.triu(np.full((length, length), -np.inf, np.float32), 1)
        for layer in range(model.layers):
            part = lambda name: weight[f"blk.{layer}.{name}.weight"]
            h = norm(x, f"blk.{layer}.attn_norm.weight")
            q = rotate((h @ part("attn_q").T).reshape(count, length, model.heads, size))
            k = rotate((h @ part("attn_k").T).reshape(count, length, model.kv_heads, size))
            v = (h @ part("attn_v").T).reshape(count, length, model.kv_heads, size)
            if kept[layer] is not None:
                k, v = (np.concatenate([old, new], 1) for old, new in zip(kept[layer], (k, v)))
            kept[layer] = k, v
            blocks = [(k, v)]
            if kept is not self.prompt:
                blocks.insert(0, self.prompt[layer])
            q = q.reshape(count, length, model.kv_heads, groups, size)
            scores = [np.einsum("blhgd,bkhd->blhgk", q, np.broadcast_to(k, (count, *k.shape[1:])), optimize=True) for k, _ in blocks]
            scores[-1][..., -length:] += later[None, :, None, None, :] * np.sqrt(size)
            scores = np.concatenate(scores, -1) / np.float32(np.sqrt(size))
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            at, mixed = 0, 0
            for _, v in blocks:
                share, at = scores[..., at : at + v.shape[1]], at + v.shape[1]
                mixed = mixed + np.einsum("blhgk,bkhd->blhgd", share, np.broadcast_to(v, (count, *v.shape[1:])), optimize=True)
            x = x + mixed.reshape(count, length, width) @ part("attn_output").T
            h = norm(x, f"blk.{layer}.ffn_norm.weight")
            gate = h @ part("ffn_gate").T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ part("ffn_up").T)) @ part("ffn_down").T
        output = weight.get("output.weight", weight["token_embd.weight"])
        logits = (norm(x[:, -1], "output_norm.weight") @ output.T).astype(np.float64)
        peak = logits.max(-1, keepdims=True)
        return logits - peak - np.log(np.exp(logits - peak).sum(-1, keepdims=True))

    def draw(self, count, random):
        """`count` answers: text, and log-probabilities of the tokens that spell it."""
        words, ends = self.model.bytes, set(self.model.control.values())
        rows, alive, kept = np.broadcast_to(self.row, (count, len(self.row))), np.arange(count), [None] * self.model.layers
        tokens, logs = [[] for _ in range(count)], [[] for _ in range(count)]
        for place in range(MOST):
            aims = random.random(len(alive))
            picks = [min(int(np.searchsorted(np.cumsum(np.exp(row)), aim, side="right")), len(row) - 1) for row, aim in zip(rows, aims)]
            going = []
            for i, (number, token) in enumerate(zip(alive, picks)):
                tokens[number].append(token)
                logs[number].append(float(rows[i][token]))
                if token not in ends and not any(stop in b"".join(words[t] for t in tokens[number]) for stop in STOPS):
                    going.append(i)
            if not going or place + 1 == MOST:
                break
            alive = alive[going]
            kept = [(k[going], v[going]) if place else None for k, v in (layer or (None, None) for layer in kept)]
            rows = self.step(np.array([[tokens[number][-1]] for number in alive]), kept, self.length + place)
        return [self.answer(t, l) for t, l in zip(tokens, logs)]

    def answer(self, tokens, logs):
        """The text before the first stop, trimmed, and the log-probabilities of the fewest tokens that spell it."""
        words = [b"" if token in self.model.control.values() else self.model.bytes[token] for token in tokens]
        spelt = b"".join(words)
        before = spelt[: min([spelt.find(stop) for stop in STOPS if stop in spelt], default=len(spelt))]
        text = before.decode("utf-8", "replace")
        if not text.strip():
            return "", logs[:1]
        wanted = len(before) - len(text) + len(text.rstrip()) if text.isascii() else len(before.rstrip())
        count, length = 0, 0
        while length < wanted:
            length, count = length + len(words[count]), count + 1
        return text.strip(), logs[:count]


def byte_letters():
    """The byte that each letter of a byte-level vocabulary stands for."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return {chr(byte) if byte in plain else chr(next(others)): byte for byte in range(256)}


def measured(contexts, verdict):
    """Utility of each passage and its standard error. `contexts`: answers without passages, with all, with each alone."""
    weights = lambda answers: softmax(np.array([np.mean(logs) for _, logs in answers]))
    whole = [(text, logs) for text, logs in contexts[1] if text]
    of, founders = clusters([text for text, _ in whole], verdict, strict)
    shares = [sum(w for w, cluster in zip(weights(whole), of) if cluster == number) for number in range(len(founders))]
    meanings = [whole[founder][0] for founder in founders]

    def support(answers):
        """The sum, and the sums with one answer left out."""
        entails = lambda text: sum(share * verdict(text, meaning)[0] for share, meaning in zip(shares, meanings)) if text else 0.0
        w, k = weights(answers), np.array([entails(text) for text, _ in answers])
        rest = [np.delete(np.arange(len(answers)), i) for i in range(len(answers))]
        return float(w @ k), np.array([w[r] @ k[r] / w[r].sum() for r in rest])

    none, without = support(contexts[0])
    gains = [(value - none, left - without) for value, left in map(support, contexts[2:])]
    error = lambda d: float(np.sqrt((len(d) - 1) / len(d) * np.sum((d - d.mean()) ** 2)))
    return [gain for gain, _ in gains], [error(left) for _, left in gains]


def main():
    asked = json.load(sys.stdin)
    model, judge = Model(sys.argv[1]), Judge(*sys.argv[2:4])
    letters = byte_letters()
    words = sorted(model.tokenizer.get_vocab().items(), key=lambda word: word[1])
    model.bytes = [bytes(letters.get(letter, 63) for letter in word) for word, _ in words]
    p, query = Prompts(model, asked["query"], asked["passages"]), asked["query"].strip()
    question = query if query.endswith("?") else query + "?"
    orders = [[], list(range(PASSAGES))] + [[i] for i in range(PASSAGES)]
    random = np.random.default_rng(SEED)
    drawn = [Drawer(model, p.answering(order)).draw(COUNT * REPEATS, random) for order in orders]
    known = {}

    def verdict(premise, hypothesis):
        if (premise, hypothesis) not in known:
            known[premise, hypothesis] = judge(f"{question} {premise}", f"{question} {hypothesis}")
        return known[premise, hypothesis]

    repeats, example = [], {}
    for number in range(REPEATS):
        contexts = [answers[COUNT * number : COUNT * (number + 1)] for answers in drawn]
        if not any(text for text, _ in contexts[1]):
            continue
        utilities, errors = measured(contexts, verdict)
        repeats.append(utilities)
        if not example:
            rows = [{"premise": a, "hypothesis": b, "probabilities": v.tolist()} for (a, b), v in known.items()]
            answers = [[{"text": text, "token_log_probabilities": logs} for text, logs in context] for context in contexts]
            example = {"contexts": answers, "verdicts": rows, "utilities": utilities, "standard_errors": errors}
    repeats = np.array(repeats)
    told = {"passages": PASSAGES, "repeats": len(repeats), "mean": repeats.mean(0).tolist(), "deviation": repeats.std(0, ddof=1).tolist()}
    json.dump({**told, "example": example}, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
