"""Which questions of the exports a training has, and which of them teach anything."""

import exports
import judge


class Data:
    """The questions of each part, as pairs (teacher's or None, student's). A question's part follows from its id and the seed."""

    def __init__(self, options):
        self.student = exports.read(options.student)
        self.teacher = exports.read(options.teacher) if options.teacher else None
        if self.teacher:
            pairs = exports.pairs(self.teacher, self.student)
            self.on = options.on or self.teacher.header["kind"]
            kind = self.teacher.header["kind"]
            if self.on == "tokens" or (self.on, kind) in [("passages", "tokens"), ("orders", "passages"), ("orders", "tokens")]:
                raise exports.ExportError(f"{options.teacher}: has no scores of {self.on}")
        else:
            pairs, self.on = [(None, question) for question in self.student.questions], "labels"
        counts = {"student_refused": self.student.refused, "unmatched": len(self.student.questions) - len(pairs), "cut": exports.cut(pairs)}
        self.counts = counts | ({"teacher_refused": self.teacher.refused} if self.teacher else {})
        self.threshold = self.student.header["relevance_threshold"]
        self.training, self.validation, self.test = [], [], []
        for pair in pairs:
            share = exports.part_of(pair[1].id, options.seed)
            part = self.test if share < options.test else self.training
            if options.test <= share < options.test + options.validation:
                part = self.validation
            part.append(pair)
        self.test = self.test[: options.test_questions]
        if not self.training:
            raise exports.ExportError(f"{options.student}: no question is left to train on")
        self.counts["idle"] = sum(not teaches(self, options, pair) for pair in self.training)
        if self.counts["idle"] == len(self.training):
            raise exports.ExportError(
                f"{options.student}: no question teaches anything: contrasts need a relevant passage and another one, and "
                "preferences two or more scores of the teacher that differ (--orders-per-step)"
            )

    def relevant(self, question):
        return [index for index, label in enumerate(question.labels) if label >= self.threshold]


def teaches(data, options, pair):
    """Whether the loss of a question depends on the weights."""
    teacher, student = pair
    if options.objective == "contrastive":
        return 0 < len(data.relevant(student)) < len(student.passages)
    if options.query_nll > 0 and data.relevant(student) and options.temperature != "sd":
        return True
    scores = teacher_scores(data, options, teacher)
    alternatives = len(scores) if data.on == "passages" else min(options.orders_per_step, len(scores))
    return alternatives > 1 and judge.temperature_of(scores, options.temperature) is not None


def teacher_scores(data, options, teacher):
    """All scores of a question that the student is to have."""
    return teacher.query_after_passage if data.on == "passages" else teacher.order_scores(options.part)
