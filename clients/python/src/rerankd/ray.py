"""Ray Data: ranks many questions on a pool of workers. The extra `ray` installs Ray.

`python-frameworks.md` of the documentation has an example.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from typing import TYPE_CHECKING, Any

from rerankd.batch import arrow_schema, rank_batch
from rerankd.client import Rerankd
from rerankd.errors import RerankdError
from rerankd.integrations._shared import needs

with needs("ray"):
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset
    import pyarrow.fs
    import pyarrow.parquet
    import ray.data

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OPTIONS = "_options.json"


def rerank(
    dataset: ray.data.Dataset,
    folder: str | os.PathLike[str],
    *,
    client: Rerankd | str | None = None,
    launch: Mapping[str, Any] | None = None,
    workers: int = 1,
    cpus: int = 1,
    gpus: float = 0,
    batch_size: int = 64,
    id: str = "id",  # noqa: A002 - the name of a column
    **options: Any,
) -> ray.data.Dataset:
    """Rank the passages of every row, write the results to `folder` as Parquet, and return the data set of the folder.

    The result has one row for each row of `dataset`, with the columns of `rerankd.batch.rank_batch`, which also
    explains `id` and `options`. Ids must be unique. They are read first: `materialize()` a data set that is expensive
    to make.

    Each of the `workers` takes `cpus` and `gpus` of the cluster. With `client`, workers call servers that run already;
    without it, each launches a server with `cpus` threads, and `launch` has further arguments of `Rerankd.launch`. A
    worker or server that ends is replaced, and its batch is ranked again.

    `folder` is one that all machines share, or an address such as `s3://bucket/ranked`. Each batch becomes a file
    there. If the job was interrupted, the same call ranks only the rows that are missing or have an error.
    """
    store = _Store.open(folder)
    ids = pa.concat_tables(
        pa.table({"id": ray.get(block)[id]}) for block in dataset.select_columns([id]).to_arrow_refs()
    )["id"].combine_chunks()
    _check_unique(ids, id)
    # Nobody else starts such a server again, so its client need not wait for it.
    launch = {"timeout": 10.0, **(launch or {})}
    settings = {"generator.threads": cpus, "limits.queue_seconds": "unlimited", **launch.get("settings", {})}
    launch["settings"] = settings
    served = {} if client else {"model": launch.get("model"), "settings": {**settings, "generator.threads": None}}
    store.check_options({"id": id, **served, **options})
    done = store.prune(ids.type, errors=True)
    if len(done):
        dataset = dataset.map_batches(
            _without, batch_size=None, batch_format="pyarrow", fn_kwargs={"id": id, "done": ray.put(done)}
        )
    # A block goes to one worker, so a data set of one block would keep only one busy.
    dataset.repartition(target_num_rows_per_block=batch_size).map_batches(
        _Worker,
        batch_size=batch_size,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=1),
        num_cpus=cpus,
        num_gpus=gpus,
        fn_constructor_args=(
            Rerankd(client) if isinstance(client, str) else client,
            launch,
            store,
            ids.type,
            {"id": id, **options},
        ),
    ).materialize()
    # A worker that was lost may have written its batch, too.
    store.prune(ids.type, errors=False)
    return ray.data.read_parquet(store.path, filesystem=store.files)


def _check_unique(ids: pa.Array, column: str) -> None:
    if ids.null_count:
        raise ValueError(f"{column}: {ids.null_count} rows have no id")
    counted = pc.value_counts(ids)
    repeated = counted.field("values").filter(pc.greater(counted.field("counts"), 1))
    if len(repeated):
        raise ValueError(f"{column}: several rows have the id {repeated[0].as_py()!r}")


def _without(batch: pa.Table, *, id: str, done: ray.ObjectRef) -> pa.Table:  # noqa: A002
    """The rows that are not done."""
    return batch.filter(pc.invert(pc.is_in(batch[id], value_set=ray.get(done))))


class _Worker:
    """An actor. It has a client, and the server of that client if nobody else runs it."""

    def __init__(
        self,
        client: Rerankd | None,
        launch: Mapping[str, Any],
        store: _Store,
        id_type: pa.DataType,
        options: Mapping[str, Any],
    ) -> None:
        self._launch = None if client else launch
        self._client = client or Rerankd.launch(**launch)
        self._store, self._options = store, options
        self._schema = arrow_schema(id_type)

    def __call__(self, batch: pa.Table) -> pa.Table:
        rows = batch.to_pylist()
        answers = rank_batch(rows, self._client, **self._options)
        failed = [row for row, answer in zip(rows, answers, strict=True) if answer["error"]]
        if failed and self._launch is not None and not self._alive():
            # A server that is gone would fail all other batches, and fast.
            self._client.close()
            self._client = Rerankd.launch(**self._launch)
            again = iter(rank_batch(failed, self._client, **self._options))
            answers = [next(again) if answer["error"] else answer for answer in answers]
        if rows:
            self._store.write(pa.Table.from_pylist(answers, self._schema))
        return pa.table({"rows": [len(rows)]})

    def _alive(self) -> bool:
        try:
            return self._client.info().ready
        except RerankdError:
            return False


class _Store:
    """The folder of results: a file per batch. Readers of Parquet ignore names that begin with an underscore."""

    def __init__(self, files: pa.fs.FileSystem, path: str) -> None:
        self.files, self.path = files, path

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> _Store:
        """Create the folder if it is missing."""
        given = os.fspath(folder)
        store = cls(*pa.fs.FileSystem.from_uri(given if "://" in given else os.path.abspath(given)))
        store.files.create_dir(store.path)
        return store

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Refuse to mix results of different options."""
        path = f"{self.path}/{OPTIONS}"
        text = json.dumps(options, default=str, sort_keys=True)
        if self.files.get_file_info(path).type == pa.fs.FileType.NotFound:
            self._replace(path, lambda unfinished: self._write_bytes(unfinished, text.encode()))
        with self.files.open_input_stream(path) as file:
            earlier = file.read().decode()
        if earlier != text:
            raise ValueError(f"{self.path}: has results of other options. Take another folder: {earlier} is not {text}")

    def write(self, rows: pa.Table) -> None:
        """Write a batch. A repetition replaces the file, because its name depends on the ids alone."""
        name = hashlib.sha256("\n".join(map(repr, rows["id"].to_pylist())).encode()).hexdigest()[:32]
        self._write_part(f"{self.path}/{name}.parquet", rows)

    def prune(self, id_type: pa.DataType, *, errors: bool) -> pa.Array:
        """Remove all but the first row of an id, also rows with an error if `errors`. Returns the ids that are left."""
        schema = pa.schema([("id", id_type), ("error", pa.string())])
        parts = pa.dataset.dataset(self.path, schema=schema, format="parquet", filesystem=self.files)
        rows = parts.to_table(columns=["id", "error", "__filename"])
        rows = rows.append_column("row", pa.array(range(len(rows)), pa.int64()))
        kept = rows.filter(pc.is_null(rows["error"])) if errors else rows
        kept = kept.group_by("id").aggregate([("row", "min")])
        dropped = rows.filter(pc.invert(pc.is_in(rows["row"], value_set=kept["row_min"].combine_chunks())))
        for path in pc.unique(dropped["__filename"]).to_pylist():
            ids = dropped.filter(pc.equal(dropped["__filename"], path))["id"].combine_chunks()
            part = pa.parquet.read_table(path, filesystem=self.files)
            part = part.filter(pc.invert(pc.is_in(part["id"], value_set=ids)))
            if len(part):
                self._write_part(path, part)
            else:
                self.files.delete_file(path)
        return kept["id"].combine_chunks()

    def _write_part(self, path: str, rows: pa.Table) -> None:
        self._replace(path, lambda unfinished: pa.parquet.write_table(rows, unfinished, filesystem=self.files))

    def _write_bytes(self, path: str, data: bytes) -> None:
        with self.files.open_output_stream(path) as file:
            file.write(data)

    def _replace(self, path: str, write: Callable[[str], None]) -> None:
        """A file is complete or absent."""
        unfinished = f"{self.path}/_{uuid.uuid4().hex}"
        write(unfinished)
        self.files.move(unfinished, path)
