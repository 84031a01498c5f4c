"""Ray Data: ranks many questions on a pool of workers. The extra `ray` installs Ray.

`python-frameworks.md` of the documentation has an example.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rerankd.batch import arrow_schema, check, rank_rows
from rerankd.client import Rerankd
from rerankd.errors import RerankdError
from rerankd.integrations._shared import needs

with needs("ray"):
    import pyarrow as pa
    import ray.data

if TYPE_CHECKING:
    from collections.abc import Mapping


def rerank(
    dataset: ray.data.Dataset,
    *,
    client: Rerankd | str | None = None,
    launch: Mapping[str, Any] | None = None,
    workers: int = 1,
    cpus: int | None = None,
    gpus: float = 0,
    batch_size: int = 64,
    id: str = "id",  # noqa: A002 - the name of a column
    **options: Any,
) -> ray.data.Dataset:
    """Rank the passages of every row. The result has one row per row, with the columns of `rerankd.batch.rank_batch`.

    That function also explains `id` and `options`. With `client`, the `workers` call servers that run already, and
    reserve no CPUs; without it, each launches a server with `cpus` threads (1), and `launch` has arguments of
    `Rerankd.launch`. Each reserves `cpus` and `gpus` of the cluster, which needs a few more CPUs to read and write. A
    worker or launched server that dies is replaced, and its batch is ranked again. If the servers of `client` do not
    answer, the job fails.

    Ray's `CheckpointConfig` lets an interrupted job continue; `examples/ray_job.py` shows how. Rows with an `error`
    are not ranked again.
    """
    # Here, because a worker that fails is started again.
    check({name: value for name, value in options.items() if name not in ("query", "passages", "scores")})
    if cpus is None:
        cpus = 0 if client else 1
    settings = {"generator.threads": cpus, **(launch or {}).get("settings", {})}
    # Ray writes a block when all of it is ranked.
    return dataset.repartition(target_num_rows_per_block=batch_size).map_batches(
        _Worker,
        batch_size=batch_size,
        batch_format="pyarrow",
        # A batch that waits for a busy worker would keep others idle at the end.
        compute=ray.data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=1),
        num_cpus=cpus,
        num_gpus=gpus,
        fn_constructor_args=(client, {**(launch or {}), "settings": settings}, {"id": id, **options}),
    )


class _Worker:
    """An actor. It has a client, and the server of that client if nobody else runs it."""

    def __init__(self, client: Rerankd | str | None, launch: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        self._launch = None if client else launch
        self._client = Rerankd(client) if isinstance(client, str) else client or Rerankd.launch(**launch)
        self._options = options

    def __call__(self, batch: pa.Table) -> pa.Table:
        rows = batch.to_pylist()
        answers, failed = rank_rows(rows, self._client, **self._options)
        if failed:
            self._replace_server()
            answers, failed = rank_rows(rows, self._client, **self._options)
            # Nobody would rank these rows if they were written.
            if failed:
                raise failed
        return pa.Table.from_pylist(answers, arrow_schema(batch.schema.field(self._options["id"]).type))

    def _replace_server(self) -> None:
        """Launch another server if this worker had launched one and it does not answer."""
        try:
            self._client.info()
        except RerankdError:
            if self._launch is None:
                raise
            self._client.close()
            self._client = Rerankd.launch(**self._launch)
