#!/usr/bin/env python3
"""Trains a LoRA adapter with which a small generator ranks as a larger one does, or as labels say, and writes it as GGUF.

    train.py --base SMALL.gguf --student student.jsonl --teacher teacher.jsonl --out FOLDER
    train.py --base SMALL.gguf --student student.jsonl --objective contrastive --out FOLDER

`student.jsonl` is the export of the small generator itself, `teacher.jsonl` that of the large one, over the same lists
(`rerankd distil export`). FOLDER gets adapter.gguf, report.json, log.jsonl and checkpoint.pt; the same command continues a training that
was broken off. docs/how-to/distil.md explains the options. Needs requirements.txt.
"""

import argparse
import importlib.metadata
import json
import math
import os
import pickle
import random
import sys
import time

import adapter
import exercises
import exports
import gguf_files
import judge
import network
import questions
import torch
from exercises import TrainingError

# What does not change the result, or only when training ends.
NOT_RECIPE = {"out", "threads", "minutes", "checkpoint_steps", "check_questions", "mean_limit", "most_limit"}
NOT_RECIPE |= {"device", "base", "student", "teacher", "check", "epochs"}

PACKAGES = ("torch", "transformers", "peft", "gguf", "numpy")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--base", required=True, metavar="GGUF", help="the small generator, as rerankd serves it")
    add("--student", required=True, metavar="FILE", help="export of the small generator")
    add("--teacher", metavar="FILE", help="export of the large generator; for the objective preference")
    add("--check", metavar="FILE", help="another export of the small generator, with scores; default: --student")
    add("--out", required=True, metavar="FOLDER")
    add("--name", default="distilled", help="general.name of the adapter")
    add("--objective", choices=["preference", "contrastive"], default="preference")
    add("--on", choices=["passages", "orders"], help="what is learnt of the teacher; default: what its export was made for")
    add("--part", choices=["query", "joint"], default="query", help="scores of orders: log P(query | order), or with log P(order)")
    add("--orders-per-step", type=int, default=8, metavar="K", help="orders drawn of each question at each step")
    add("--temperature", help="of both softmaxes: nats, or sd, the deviation of the teacher's scores; sd, or 1 if contrastive")
    add("--negatives", type=int, default=3, help="contrastive: passages without the label, those that the student ranks highest")
    add("--query-nll", type=float, default=0.0, metavar="WEIGHT", help="adds WEIGHT times -log P(query | relevant passage), a token")
    add("--rank", type=int, default=8)
    add("--alpha", type=float, default=32.0)
    add("--dropout", type=float, default=0.1)
    layers = [name.split(".")[1] for name in adapter.LAYERS]
    add("--targets", nargs="+", default=layers, choices=layers, metavar="LAYER", help=f"of {', '.join(layers)}")
    add("--rate", type=float, default=1e-4, help="learning rate")
    add("--batch", type=int, default=4, help="questions of a step")
    add("--epochs", type=int, default=5)
    add("--weight-decay", type=float, default=0.01)
    add("--warm-up", type=int, default=10, metavar="STEPS")
    add("--clip", type=float, default=1.0, help="largest norm of the gradient")
    add("--validation", type=float, default=0.1, metavar="SHARE", help="share of questions on whose loss training stops")
    add("--test", type=float, default=0.2, metavar="SHARE", help="share of questions for the report only")
    add("--patience", type=int, default=2, help="epochs without a better loss before training stops")
    add("--minutes", type=float, help="stop after so many minutes of steps; check, validation and test come on top")
    add("--test-orders", type=int, default=8, metavar="K", help="orders of a test question, for the report")
    add("--test-questions", type=int, metavar="N", help="use only so many test questions; default: all")
    add("--device", default="cpu", help="of torch, such as cuda")
    add("--dtype", choices=["float32", "bfloat16"], default="float32", help="of the base's weights; those of the adapter have 32 bits")
    add("--seed", type=int, default=0)
    add("--threads", type=int, default=os.cpu_count() or 1)
    add("--checkpoint-steps", type=int, default=50)
    network.add_check_options(parser)
    options = parser.parse_args()
    if (options.objective == "preference") != (options.teacher is not None):
        parser.error("--teacher belongs to the objective preference")
    if options.temperature is None:
        options.temperature = "sd" if options.objective == "preference" else "1"
    if options.temperature != "sd" and not above_0(options.temperature):
        parser.error("--temperature: must be sd or a number above 0")
    if options.objective == "contrastive" and options.temperature == "sd":
        parser.error("--temperature: sd is the teacher's, and there is none")
    for name in AT_LEAST_1:
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: must be at least 1")
    for name in ("alpha", "rate", "clip", "minutes"):
        if getattr(options, name) is not None and not above_0(getattr(options, name)):
            parser.error(f"--{name}: must be a number above 0")
    for name in ("query_nll", "weight_decay", "warm_up"):
        if not 0 <= getattr(options, name) < math.inf:
            parser.error(f"--{name.replace('_', '-')}: must be at least 0")
    if not 0 <= options.dropout < 1:
        parser.error("--dropout: must be from 0 to below 1")
    if not (options.validation >= 0 and options.test >= 0 and options.validation + options.test < 1):
        parser.error("--validation and --test: must be at least 0, and below 1 together")
    if not 0 <= options.seed < 2**63:
        parser.error("--seed: must be from 0 to 2^63 - 1")
    return options


AT_LEAST_1 = ("rank", "batch", "epochs", "orders_per_step", "negatives", "patience", "threads", "checkpoint_steps", "check_questions")
AT_LEAST_1 += ("test_orders", "test_questions", "tokens_at_once")


def above_0(text):
    """Whether this is a finite number above 0."""
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


def validation_loss(model, data, options):
    model.eval()
    draw = random.Random(f"{options.seed} validation")
    asked = exercises.of(data, options, data.validation, draw)
    with torch.no_grad():
        losses = [loss.item() for group in exercises.losses(model, asked, options.tokens_at_once) for loss in group]
    return sum(losses) / len(losses) if losses else None


def batches(data, options):
    """(epoch, whether it is the epoch's last, pairs) of every step. It follows from the seed, so a training can go on anywhere."""
    for epoch in range(options.epochs):
        order = list(range(len(data.training)))
        random.Random(f"{options.seed} {epoch}").shuffle(order)
        for start in range(0, len(order), options.batch):
            pairs = [data.training[index] for index in order[start : start + options.batch]]
            yield epoch, start + options.batch >= len(order), pairs


class Training:
    """The state of a training, which is what a checkpoint holds."""

    def __init__(self, model, wrapped, data, options, recipe):
        self.model, self.wrapped, self.data, self.options, self.recipe = model, wrapped, data, options, recipe
        self.weights = [weight for weight in wrapped.parameters() if weight.requires_grad]
        self.optimizer = torch.optim.AdamW(self.weights, lr=options.rate, weight_decay=options.weight_decay)
        self.state = {"step": 0, "best": None, "worse": 0, "best_step": 0, "ended": False, "seconds": 0.0, "losses": []}
        self.best = None
        self.checkpoint = os.path.join(options.out, "checkpoint.pt")

    def resume(self):
        if not os.path.exists(self.checkpoint):
            return
        try:
            stored = torch.load(self.checkpoint, weights_only=True, map_location="cpu")
        except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
            raise TrainingError(f"{self.checkpoint}: cannot be read: {error}") from None
        recipe = json.loads(stored["recipe"])
        changed = [key for key in sorted(recipe | self.recipe) if recipe.get(key) != self.recipe.get(key)]
        if changed:
            told = ", ".join(f"{key} (stored {recipe.get(key)}, now {self.recipe.get(key)})" for key in changed)
            raise TrainingError(f"{self.checkpoint}: was made with other settings: {told}")
        self.load(stored["weights"])
        self.optimizer.load_state_dict(stored["optimizer"])
        self.best = stored["best"]
        self.state |= stored["state"]
        self.tell(resumed=self.state["step"])

    def load(self, weights):
        with torch.no_grad():
            for own, stored in zip(self.weights, weights, strict=True):
                own.copy_(stored)

    def copies(self):
        return [weight.detach().clone() for weight in self.weights]

    def save(self):
        kept = {
            "recipe": json.dumps(self.recipe),
            "weights": self.copies(),
            "optimizer": self.optimizer.state_dict(),
            "state": self.state,
            "best": self.best,
        }
        torch.save(kept, self.checkpoint + ".new")
        os.replace(self.checkpoint + ".new", self.checkpoint)

    def tell(self, **values):
        line = json.dumps(values)
        print(line, flush=True)
        with open(os.path.join(self.options.out, "log.jsonl"), "a") as log:
            log.write(line + "\n")

    def step(self, pairs):
        """One step. Returns the mean loss of its questions, or None where none of them teaches anything."""
        options, number = self.options, self.state["step"]
        # Dropout and draws of a step do not depend on the steps before, so a resumed training is the unbroken one.
        torch.manual_seed((options.seed * 1_000_003 + number) % 2**63)
        draw = random.Random(f"{options.seed} step {number}")
        self.model.train()
        losses = []
        asked = exercises.of(self.data, options, pairs, draw)
        for group in exercises.losses(self.model, asked, options.tokens_at_once):
            (sum(group) / len(pairs)).backward()
            losses += [loss.item() for loss in group]
        if losses:
            torch.nn.utils.clip_grad_norm_(self.weights, options.clip)
            for group in self.optimizer.param_groups:
                group["lr"] = options.rate * min(1.0, (number + 1) / max(options.warm_up, 1))
            self.optimizer.step()
        self.optimizer.zero_grad()
        return sum(losses) / len(losses) if losses else None

    def end_epoch(self, epoch):
        loss, losses = validation_loss(self.model, self.data, self.options), self.state["losses"]
        mean = sum(losses) / len(losses) if losses else None
        self.state["losses"] = []
        told = {"step": self.state["step"], "seconds": round(self.state["seconds"], 1)}
        self.tell(epoch=epoch + 1, loss=mean, validation=loss, **told)
        if loss is None or self.state["best"] is None or loss < self.state["best"]:
            self.state["best"], self.state["worse"], self.best = loss, 0, self.copies()
            self.state["best_step"] = self.state["step"]
        else:
            self.state["worse"] += 1
            self.state["ended"] = self.state["worse"] >= self.options.patience

    def late(self):
        return self.options.minutes is not None and self.state["seconds"] >= 60 * self.options.minutes

    def run(self):
        # `judged`: whether the weights are those of the end of an epoch.
        options, judged = self.options, True
        if self.state["step"] == 0 and self.data.validation:
            self.state["best"] = validation_loss(self.model, self.data, options)
            self.tell(epoch=0, step=0, validation=self.state["best"])
            self.best = self.copies()
        for number, (epoch, last, pairs) in enumerate(batches(self.data, options)):
            if number < self.state["step"]:
                judged = last
                continue
            if self.state["ended"] or self.late():
                break
            started = time.monotonic()
            loss = self.step(pairs)
            if loss is not None:
                self.state["losses"].append(loss)
            self.state["step"] += 1
            self.state["seconds"] += time.monotonic() - started
            judged = last
            if last:
                self.end_epoch(epoch)
            if last or self.late() or self.state["step"] % options.checkpoint_steps == 0:
                self.save()
        if not judged:
            # After the checkpoint: a training that goes on must not know that it was judged here.
            self.end_epoch(epoch)
        if self.best is not None:
            self.load(self.best)


def main():
    options = arguments()
    os.makedirs(options.out, exist_ok=True)
    data = questions.Data(options)
    base = gguf_files.sha256(options.base)
    reader = gguf_files.reader(options.base)
    architecture, heads = gguf_files.architecture_of(reader), gguf_files.heads_of(reader)
    # Before the model is loaded: an architecture without adapters is refused.
    adapter.heads_of(architecture, "attn_q", *heads)
    scored = exports.read(options.check) if options.check else data.student
    for export in (data.student, scored):
        export.refuse_other_generator(options.base, base)
        frame = [export.header[key] for key in ("opening_tokens", "cue_tokens")]
        if frame != [data.student.opening, data.student.cue]:
            raise exports.ExportError(f"{export.path}: has another chat frame or other prompts than {options.student}")
    recipe = {key: value for key, value in vars(options).items() if key not in NOT_RECIPE}
    recipe |= {"base_sha256": base, "student_sha256": data.student.sha256, "on": data.on}
    if data.teacher:
        recipe |= {"teacher_sha256": data.teacher.sha256, "teacher_generator_sha256": data.teacher.header["generator_sha256"]}
    model = network.load(options.base, options.threads, options.device, options.dtype)
    checked = scored.questions[: options.check_questions]
    agreement = network.check(model, scored, checked, options.mean_limit, options.most_limit, options.tokens_at_once)
    print(json.dumps({"agrees_with_rerankd": agreement}), flush=True)
    torch.manual_seed(options.seed)
    wrapped = network.with_lora(model, options.rank, options.alpha, options.dropout, options.targets)
    # What cannot be written is found before training.
    adapter.from_peft(network.lora_state(wrapped), architecture, *heads)
    training = Training(model, wrapped, data, options, recipe)
    weights = sum(weight.numel() for weight in training.weights)
    counts = {"training": len(data.training), "validation": len(data.validation), "test": len(data.test)} | data.counts
    training.tell(**counts, weights=weights)
    limits = {"part": options.part, "most_orders": options.test_orders, "tokens": options.tokens_at_once}
    training.resume()
    if "before" not in training.state:
        # B is 0 at the beginning, so this is the base.
        training.state["before"] = judge.judge(model, data.student, data.test, **limits)
    training.run()
    after = judge.judge(model, data.student, data.test, **limits)
    tensors = adapter.from_peft(network.lora_state(wrapped), architecture, *heads)
    recipe |= {"steps": training.state["step"], "best_step": training.state["best_step"], "epochs": options.epochs}
    recipe["versions"] = {name: importlib.metadata.version(name) for name in PACKAGES}
    path = os.path.join(options.out, "adapter.gguf")
    told = {"alpha": options.alpha, "base_sha256": base, "recipe": recipe, "seed": options.seed}
    trained = {exports.mark(own) for _, own in data.training + data.validation}
    adapter.write(path, tensors, architecture=architecture, trained=trained, **told)
    told = {
        "agreement": agreement,
        "questions": counts,
        "steps": training.state["step"],
        "seconds": round(training.state["seconds"], 1),
        "test": judge.report(training.state["before"], after),
        "recipe": recipe,
        "adapter_sha256": gguf_files.sha256(path),
    }
    with open(os.path.join(options.out, "report.json"), "w") as file:
        file.write(json.dumps(told, indent=1) + "\n")
    print(json.dumps({"test": told["test"], "adapter": path}))


if __name__ == "__main__":
    try:
        main()
    except (TrainingError, exports.ExportError, *network.ERRORS, adapter.AdapterError, gguf_files.FileError, OSError) as error:
        sys.exit(str(error))
