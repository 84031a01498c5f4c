"""The student in torch: loading, the scores of prompts, and adapters. Needs torch, transformers, peft and gguf.

A prompt is `opening, passages, cue, query`, as crates/engine/src/methods/query_prompt.rs has it. Its tokens come from an export, so they are
those that rerankd evaluates: no text is tokenised here.
"""

import dataclasses
import os
import sys

import adapter
import gguf_files
import torch
from torch.utils.checkpoint import checkpoint

os.environ.setdefault("HF_HUB_OFFLINE", "1")

# Rows of logits that are held at once.
ROWS = 512
# Tokens, padding included, that are evaluated at once.
TOKENS = 4096


@dataclasses.dataclass(frozen=True)
class Sequence:
    """Tokens of a prompt, and which of them are scored: indices of the query's tokens, and of the passages'."""

    ids: list
    query: range
    passages: range


def prompt(export, question, order, with_passages=False):
    """The prompt of a question with the passages of `order`."""
    ids = list(export.opening)
    first = len(ids)
    for index in order:
        ids += question.passages[index]
    last = len(ids)
    ids += export.cue
    start = len(ids)
    ids += question.query
    return Sequence(ids, range(start, len(ids)), range(first, last) if with_passages else range(0))


def load(path, threads, device="cpu", dtype="float32"):
    """The model of a GGUF file with weights of a type of torch. Loaded by transformers, which undoes the order of rows."""
    import transformers

    torch.set_num_threads(threads)
    transformers.utils.logging.disable_progress_bar()
    # The whole path: of a name alone transformers takes the file in the current folder, where there is one.
    whole = os.path.abspath(path)
    model = transformers.AutoModelForCausalLM.from_pretrained(os.path.dirname(whole), gguf_file=whole, dtype=getattr(torch, dtype))
    try:
        return model.to(device).eval()
    except (RuntimeError, AssertionError) as error:
        raise LoadError(f"--device {device}: {error}") from None


def batches_of(lengths, tokens):
    """Indices of sequences of these lengths, in batches of at most so many tokens with padding; a longer sequence stands alone.

    The longest come first, so that sequences of similar lengths meet.
    """
    batches = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batches and (len(batches[-1]) + 1) * lengths[batches[-1][0]] <= tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def log_probabilities(model, sequences, tokens=TOKENS):
    """Sums of log P, in nats, of the scored tokens of each sequence: two tensors, the query's and the passages'.

    Evaluates `tokens` tokens at once. For gradients the activations of one batch are held: where there are several, each is evaluated
    again, with the same dropout, when its gradient is computed (Chen et al., arXiv:1604.06174). The gradient is that of all together.
    """
    batches = batches_of([len(sequence.ids) for sequence in sequences], tokens)
    again = torch.is_grad_enabled() and len(batches) > 1
    parts = []
    for batch in batches:
        given = [sequences[index] for index in batch]
        longest = len(given[0].ids)
        # Padding stands at the end, where no scored token sees it.
        ids = torch.tensor([one.ids + [0] * (longest - len(one.ids)) for one in given], device=model.lm_head.weight.device)
        # `checkpoint` repeats the dropout of the devices of its arguments: the tokens must be one of them.
        parts.append(checkpoint(of_batch, model, ids, given, use_reentrant=False) if again else of_batch(model, ids, given))
    places = torch.tensor([index for batch in batches for index in batch]).argsort().to(parts[0][0].device)
    query, passages = (torch.cat(sums)[places] for sums in zip(*parts))
    return query, passages


def of_batch(model, ids, sequences):
    """`log_probabilities` of one batch, whose padded tokens are `ids`."""
    device = ids.device
    hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
    owners, places, parts = [], [], []
    for number, sequence in enumerate(sequences):
        for part, scored in enumerate((sequence.query, sequence.passages)):
            owners += [number] * len(scored)
            places += list(scored)
            parts += [part] * len(scored)
    owners, places, parts = (torch.tensor(values, dtype=torch.long, device=device) for values in (owners, places, parts))
    targets = ids[owners, places]
    # The token before a token holds its logits.
    states = hidden[owners, places - 1]

    def scores(states, targets):
        # A softmax of 16-bit numbers would be too coarse.
        logits = model.lm_head(states).float()
        return logits.gather(1, targets[:, None])[:, 0] - logits.logsumexp(1)

    chunks = list(zip(states.split(ROWS), targets.split(ROWS)))
    if torch.is_grad_enabled() and len(chunks) > 1:
        # Logits of long prompts are computed again for the gradients, not kept.
        scored = torch.cat([checkpoint(scores, *chunk, use_reentrant=False) for chunk in chunks])
    else:
        scored = torch.cat([scores(*chunk) for chunk in chunks])
    sums = torch.zeros(2, len(sequences), device=device).index_put((parts, owners), scored, accumulate=True)
    return sums[0], sums[1]


@torch.no_grad()
def scored(model, sequences, tokens=TOKENS):
    """The same without gradients, as two lists."""
    query, passages = log_probabilities(model, sequences, tokens)
    return query.tolist(), passages.tolist()


def with_lora(model, rank, alpha, dropout, targets):
    """Adds a LoRA of 32 bits to the linear layers of these names, in place. Returns the model that peft made of it."""
    import peft

    config = peft.LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=dropout, target_modules=list(targets), bias="none", task_type="CAUSAL_LM"
    )
    return peft.get_peft_model(model, config)


def lora_state(wrapped):
    """The LoRA's weights by name, as numpy arrays."""
    import peft

    # Otherwise a config.json that happens to lie beside the base decides whether the embeddings belong to the adapter.
    state = peft.get_peft_model_state_dict(wrapped, save_embedding_layers=False)
    return {name: value.detach().cpu().numpy() for name, value in state.items()}


@torch.no_grad()
def merge(model, path, base):
    """Adds the GGUF adapter at `path` to the weights of the model that was loaded from `base`."""
    pairs, told = adapter.read(path)
    adapter.check_base(path, told, base)
    heads = gguf_files.heads_of(gguf_files.reader(base))
    names = {short: long for long, short in adapter.LAYERS.items()}
    for name, (scale, a, b) in pairs.items():
        parts = name.split(".")
        if len(parts) != 4 or parts[2] not in names:
            raise adapter.AdapterError(f"{path}: {name} is not among the layers that are known")
        _, layer, short, _ = parts
        count = adapter.heads_of(told["general.architecture"], short, *heads)
        if count:
            b = adapter.to_torch_rows(b, count)
        weight = model.get_submodule(f"model.layers.{layer}.{names[short]}").weight
        if weight.shape != (b.shape[0], a.shape[1]):
            raise adapter.AdapterError(f"{path}: {name} is for weights of another shape than those of {base}")
        weight += (scale * torch.from_numpy(b @ a)).to(weight)
    return model


def add_check_options(parser):
    """The options of `check`."""
    add = parser.add_argument
    add("--check-questions", type=int, default=4, help="questions on which torch and rerankd must agree before anything else")
    add("--mean-limit", type=float, default=0.05, help="largest mean of the absolute differences from rerankd, nats a token")
    add("--most-limit", type=float, default=0.25, help="largest absolute difference of one score from rerankd, nats a token")
    add("--tokens-at-once", type=int, default=TOKENS, metavar="N", help="most tokens whose activations are held; bounds memory")


class LoadError(Exception):
    """The model cannot be loaded as asked."""


class Disagreement(Exception):
    """The scores of this model are not those that rerankd exported."""


ERRORS = (LoadError, Disagreement)


def check(model, export, questions, mean_limit, most_limit, tokens=TOKENS):
    """Compares the model's scores with those of its own export, a token of the scored text.

    Raises `Disagreement` where the mean of the absolute differences is beyond `mean_limit` or any beyond `most_limit`. Returns both. An
    export of tokens has nothing to compare: None is returned, and standard error says so.
    """
    if export.header["kind"] == "tokens":
        print(f"{export.path}: has no scores (--kind tokens): that torch and rerankd agree is not checked", file=sys.stderr)
        return None
    differences = []
    for question in questions:
        sequences, expected = [], []
        for index, score in enumerate(question.query_after_passage):
            sequences.append(prompt(export, question, [index]))
            expected.append((score, None))
        if question.query_alone is not None:
            sequences.append(prompt(export, question, []))
            expected.append((question.query_alone, None))
        for order, *scores in list(zip(question.orders, question.query_after_order, question.passages_in_order))[:4]:
            sequences.append(prompt(export, question, order, with_passages=True))
            expected.append(scores)
        query, passages = scored(model, sequences, tokens)
        for sequence, wanted, *found in zip(sequences, expected, query, passages):
            for score, own, text in zip(wanted, found, (sequence.query, sequence.passages)):
                if score is not None:
                    differences.append(abs(own - score) / len(text))
    if not differences:
        raise Disagreement(f"{export.path}: has no question with scores to compare with")
    average = sum(differences) / len(differences)
    most = max(differences)
    found = f"{len(differences)} scores differ by {average:.4f} nats a token in the mean, {most:.4f} at most"
    # Not the reverse: a score that is no number is within no limit.
    if not (average <= mean_limit and most <= most_limit):
        raise Disagreement(f"{export.path}: {found}; allowed are {mean_limit} and {most_limit}")
    return {"scores": len(differences), "mean": round(average, 5), "most": round(most, 5)}
