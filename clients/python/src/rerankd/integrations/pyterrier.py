"""PyTerrier: a transformer that reranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rerankd.integrations._shared import ADDRESS, clients, descending, needs
from rerankd.types import Passage, Request

with needs("pyterrier"):
    import pyterrier as pt

if TYPE_CHECKING:
    from rerankd.client import Rerankd


class RerankdTransformer(pt.Transformer):
    """`bm25 % 20 >> RerankdTransformer()`. Its input has a column with texts, `text` by default.

    `use_scores` mixes in the column `score` of the input.
    """

    def __init__(
        self,
        client: Rerankd | str = ADDRESS,
        *,
        method: str | None = None,
        text: str = "text",
        use_scores: bool = False,
    ) -> None:
        self._client = clients(client)[0]
        self.method, self.text, self.use_scores = method, text, use_scores

    def transform(self, inp: Any) -> Any:
        """The rows with new scores and ranks."""
        pt.validate.result_frame(inp, extra_columns=["query", self.text])
        frame = inp.drop(columns=["score", "rank"], errors="ignore").assign(score=0.0)
        groups = [rows for _, rows in inp.groupby("qid", sort=False)]
        requests = [
            Request(rows["query"].iloc[0], [self._passage(row) for row in rows.to_dict("records")], method=self.method)
            for rows in groups
        ]
        for answer in self._client.rerank_many(requests):
            labels = groups[answer.index].index
            for index, score in descending(answer.result()):
                frame.loc[labels[index], "score"] = score
        return pt.model.add_ranks(frame)

    def _passage(self, row: dict[str, Any]) -> Passage:
        score = row["score"] if self.use_scores else None
        return Passage(row[self.text], row.get("title") or "", score=score)
