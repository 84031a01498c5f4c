"""Utilities of ranking methods under a llama-architecture GGUF file, naively and without rerankd.

Every prompt is written out here and evaluated from its beginning, separately, by a forward pass in numpy over 32-bit
weights. The tokenizer is built from the file's vocabulary and merges. Nothing is shared with llama.cpp or with the plans of the server.

  pip install gguf numpy tokenizers
  python methods.py MODEL.gguf < input.json > methods.json      # {"query": "...", "passages": [{"title": "...", "text": "..."}]}
"""

import itertools
import json
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

BEFORE, AFTER = "<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"
NEWLINE = "\n"
# Rounding of a gain, in nats.
ROUNDING = 0.3


class Model:
    """Weights and vocabulary of one file."""

    def __init__(self, path):
        reader = GGUFReader(path)
        field = lambda key: reader.fields[key].contents()
        value = lambda key: field("llama." + key)
        self.heads, self.kv_heads = value("attention.head_count"), value("attention.head_count_kv")
        self.epsilon = value("attention.layer_norm_rms_epsilon")
        self.base = value("rope.freq_base") if "llama.rope.freq_base" in reader.fields else 10_000.0
        self.layers = value("block_count")
        self.weights = {t.name: dequantize(t.data, t.tensor_type).astype(np.float32) for t in reader.tensors}
        words = field("tokenizer.ggml.tokens")
        kinds = field("tokenizer.ggml.token_type")
        merges = [tuple(merge.split(" ")) for merge in field("tokenizer.ggml.merges")]
        self.tokenizer = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=merges))
        digits = pre_tokenizers.Digits(individual_digits=True)
        self.tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
        self.tokenizer.decoder = decoders.ByteLevel()
        self.control = {word: i for i, (word, kind) in enumerate(zip(words, kinds)) if kind == 3}
        self.known = {}

    def text(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def frame(self, text):
        """Text in which control tokens are read."""
        ids, rest = [], text
        while rest:
            found = min(((rest.find(word), word) for word in self.control if word in rest), default=(len(rest), ""))
            ids += self.text(rest[: found[0]]) if found[0] else []
            ids += [self.control[found[1]]] if found[1] else []
            rest = rest[found[0] + len(found[1]) :]
        return ids

    def rows(self, tokens):
        """log P of every next token after every token: one row per token, in nats."""
        key = tuple(tokens)
        if key not in self.known:
            self.known = {key: self.forward(list(tokens))}
        return self.known[key]

    def forward(self, tokens):
        weight = self.weights
        x = weight["token_embd.weight"][tokens]
        length, width = x.shape
        size = width // self.heads
        angle = np.arange(length)[:, None] * self.base ** (-np.arange(0, size, 2) / size)[None, :]
        cos, sin = np.cos(angle)[:, None, :].astype(np.float32), np.sin(angle)[:, None, :].astype(np.float32)

        def rotate(v):
            even, odd = v[..., 0::2], v[..., 1::2]
            out = np.empty_like(v)
            out[..., 0::2], out[..., 1::2] = even * cos - odd * sin, even * sin + odd * cos
            return out

        norm = lambda v, name: v / np.sqrt((v * v).mean(-1, keepdims=True) + self.epsilon) * weight[name]
        mask = np.triu(np.full((length, length), -np.inf, np.float32), 1)
        for layer in range(self.layers):
            part = lambda name: weight[f"blk.{layer}.{name}.weight"]
            h = norm(x, f"blk.{layer}.attn_norm.weight")
            q = rotate((h @ part("attn_q").T).reshape(length, self.heads, size))
            k = rotate((h @ part("attn_k").T).reshape(length, self.kv_heads, size))
            v = (h @ part("attn_v").T).reshape(length, self.kv_heads, size)
            k, v = (np.repeat(m, self.heads // self.kv_heads, axis=1) for m in (k, v))
            scores = np.einsum("qhd,khd->hqk", q, k, optimize=True) / np.float32(np.sqrt(size)) + mask
            scores = np.exp(scores - scores.max(-1, keepdims=True))
            scores /= scores.sum(-1, keepdims=True)
            mixed = np.einsum("hqk,khd->qhd", scores, v, optimize=True).reshape(length, width)
            x = x + mixed @ part("attn_output").T
            h = norm(x, f"blk.{layer}.ffn_norm.weight")
            gate = h @ part("ffn_gate").T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ part("ffn_up").T)) @ part("ffn_down").T
        output = weight.get("output.weight", weight["token_embd.weight"])
        logits = (norm(x, "output_norm.weight") @ output.T).astype(np.float64)
        peak = logits.max(-1, keepdims=True)
        return logits - peak - np.log(np.exp(logits - peak).sum(-1, keepdims=True))

    def scored(self, before, tokens):
        """log P of each token after `before`; without anything before it, the first has none."""
        rows = self.rows(before + tokens)
        first = len(before)
        return [float(rows[first + i - 1, t]) for i, t in enumerate(tokens) if first + i > 0]


class Prompts:
    """The prompts of all methods for one query and its passages."""

    def __init__(self, model, query, passages):
        self.model, text = model, model.text
        self.query = text(" " + query.strip())
        self.passages = [self.passage(p["title"], p["text"]) for p in passages]
        self.before, self.after = model.frame(BEFORE), model.frame(AFTER)

    def passage(self, title, text):
        head = f"Document: ({title.strip()})" if title.strip() else "Document:"
        return self.model.text(head) + self.model.text(" " + text.strip()) + self.model.text("\n\n")

    def listed(self, order):
        return sum((self.passages[index] for index in order), [])

    def question(self, order):
        """The prompt up to the query, for scores of the query."""
        opening = self.before + self.model.text("Read the documents and write the question that they answer.\n\n")
        return opening, self.listed(order), self.after + self.model.text("Question:")

    def likelihood(self, order):
        opening, passages, cue = self.question(order)
        return sum(self.model.scored(opening + passages + cue, self.query))

    def judgement(self, passage):
        """log-odds of Yes over No."""
        text = self.model.text
        prompt = self.before + text("Decide whether the document helps to answer the question.\n\n") + passage
        prompt += text("Question:") + self.query + text("\nDoes the document help to answer the question?")
        prompt += self.after + text("Yes or No:")
        return sum(self.model.scored(prompt, text(" Yes"))) - sum(self.model.scored(prompt, text(" No")))

    def comparison(self, order):
        """log P of each label."""
        text = self.model.text
        labels = [" A", " B", " C", " D"][: len(order)]
        prompt = self.before + text("Compare the documents.\n\n") + self.listed(order)
        prompt += text(f"The documents are labelled{','.join(labels)} in the order above.\nQuestion:") + self.query
        prompt += text("\nWhich document helps most to answer the question?") + self.after + text("Label:")
        return [sum(self.model.scored(prompt, text(label))) for label in labels]

    def labelled(self, order, query):
        """log P of each letter as the first of the list."""
        text = self.model.text
        prompt = self.before + text(
            "I will provide you with passages, each indicated by an alphabetical identifier []. Rank the passages based on "
            "their relevance to the search query that follows them.\n\n"
        )
        letters = [chr(ord("A") + place) for place in range(len(order))]
        for letter, index in zip(letters, order):
            prompt += text(f"[{letter}] ") + self.passages[index]
        prompt += text("Search Query:") + query + text(
            "\nRank the passages above based on their relevance to the search query. All the passages should be included "
            "and listed using identifiers, in descending order of relevance. The output format should be [] > [], e.g., "
            "[B] > [A]. Only respond with the ranking results, do not say any word or explain.\n"
        )
        prompt += self.after + text("[")
        row = self.model.rows(prompt)[-1]
        return np.array([row[text(letter)[0]] for letter in letters])

    def answering(self, order):
        text = self.model.text
        documents = " from the documents" if order else ""
        opening = self.before + text(f"Answer the question with a few words{documents}.\n\n")
        return opening + self.listed(order) + text("Question:") + self.query + text("\n") + self.after + text("Short answer:")

    def own_answer(self):
        """Greedy, from all passages, up to the end of the turn or of the line; at most 32 tokens."""
        prompt, drawn = self.answering(range(len(self.passages))), []
        while len(drawn) < 32:
            token = int(self.model.rows(prompt + drawn)[-1].argmax())
            if token in self.model.control.values() or NEWLINE in self.model.tokenizer.decode(drawn + [token]).lstrip(" "):
                break
            drawn.append(token)
        return drawn


def query_generation(p):
    none = p.likelihood([])
    return [p.likelihood([i]) - none for i in range(len(p.passages))]


def bayes(p):
    opening, _, cue = p.question([])
    passages = [p.model.scored(opening, passage) for passage in p.passages]
    queries = [p.model.scored(opening + passage + cue, p.query) for passage in p.passages]
    return [np.mean(query) + np.mean(passage) for query, passage in zip(queries, passages)]


def long_llm_lingua(p):
    question = p.query + p.model.text(" We can get the answer to this question in the given documents.")
    none = np.mean(p.model.scored([], question))
    return [np.mean(p.model.scored(passage, question)) - none for passage in p.passages]


def yes_no(p):
    none = p.judgement(p.passage("", "N/A"))
    return [p.judgement(passage) - none for passage in p.passages]


def pairwise(p):
    n = len(p.passages)
    share = lambda row: 1 / (1 + np.exp(row[1] - row[0]))
    first = {pair: share(p.comparison(pair)) for pair in itertools.permutations(range(n), 2)}
    shares = [np.mean([(first[i, j] + 1 - first[j, i]) / 2 for j in range(n) if j != i]) for i in range(n)]
    return [np.log(s / (1 - s)) for s in shares]


def listwise_bayes(p, least):
    """Ends when no passage gains more than `least`."""
    chosen, rest, reference = [], list(range(len(p.passages))), p.likelihood([])
    gains = [0.0] * len(rest)
    while rest:
        scores = {i: p.likelihood(chosen + [i]) for i in rest}
        for i, score in scores.items():
            gains[i] = score - reference
        best = max(rest, key=lambda i: scores[i])
        if scores[best] <= reference + least:
            break
        chosen, reference = chosen + [best], scores[best]
        rest.remove(best)
    return gains


def first(p):
    order = range(len(p.passages))
    rows = [p.labelled(order, query) for query in (p.query, p.model.text(" N/A"))]
    asked, neutral = (row - np.log(np.exp(row).sum()) for row in rows)
    return asked - neutral


def own_answer_methods(p):
    answer, everything = p.own_answer(), list(range(len(p.passages)))
    score = lambda order: sum(p.model.scored(p.answering(list(order)), answer))
    none, whole = score([]), score(everything)
    assert whole > none, "the own answer is not likelier with the passages"
    subsets = [[j for j in everything if number >> j & 1] for number in range(1 << len(everything))]
    logits = [(lambda s: s - np.log(max(1 - np.exp(s), 1e-6)))(score(subset)) for subset in subsets]
    return {
        "answer-likelihood": [score([i]) - none for i in everything],
        "leave-one-out": [whole - score([j for j in everything if j != i]) for i in everything],
        # The penalty is per token of the answer; the utility is in nats of the whole answer's logit.
        "context-cite": lasso(subsets, np.array(logits) / len(answer), len(everything), 0.01) * len(answer),
    }, answer


def lasso(subsets, outcomes, n, alpha):
    """Weights of the passages. Every subset comes once, so the standardised columns are orthogonal: a soft threshold solves it."""
    masks = np.array([[j in subset for j in range(n)] for subset in subsets], float)
    standardised = (masks - masks.mean(0)) / masks.std(0)
    slopes = standardised.T @ (outcomes - outcomes.mean()) / len(outcomes)
    return np.sign(slopes) * np.maximum(np.abs(slopes) - alpha, 0) / masks.std(0)


def main():
    asked = json.load(sys.stdin)
    p = Prompts(Model(sys.argv[1]), asked["query"], asked["passages"])
    own, answer = own_answer_methods(p)
    utilities = {
        "query-generation": query_generation(p),
        "bayes-saliency": bayes(p),
        "long-llm-lingua": long_llm_lingua(p),
        "yes-no": yes_no(p),
        "pairwise": pairwise(p),
        "listwise-bayes": listwise_bayes(p, ROUNDING),
        "first": first(p),
        **own,
    }
    plain = lambda methods: {name: [round(float(value), 6) for value in values] for name, values in methods.items()}
    # A gain within the kernels' rounding ends the choice in one program and not in the other.
    alternatives = {"listwise-bayes": listwise_bayes(p, -ROUNDING)}
    tokens = {"query": p.query, "passages": p.passages, "answer": answer}
    told = {"tokens": tokens, "utilities": plain(utilities), "alternatives": plain(alternatives)}
    json.dump({**asked, **told}, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
