"""Measures rerankd.ray on two local nodes of Ray: one client, and 1, 2 and 4 workers.

    python3 benches/fleet/ray_workers.py --count 1200
    RERANKD=target/release/rerankd python3 benches/fleet/ray_workers.py --count 48 --batch-size 4

Needs the package `ray[data]` and those of the client. Without RERANKD a FakeServer answers that sleeps 50 ms per
question of a stream, so the stream of each worker stands for a server. With RERANKD each worker launches that program
with one thread and its default model. Prints a line per case: rows, distinct ids, whether orders and scores are those
of the one client, the seconds of the job, and the questions per second between its first and last file.
"""

import argparse
import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import pyarrow as pa
import pyarrow.parquet as pq
import ray
from ray.cluster_utils import Cluster

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "clients" / "python" / "src"
os.environ |= {"PYTHONPATH": str(SOURCE), "RAY_USAGE_STATS_ENABLED": "0"}
sys.path.insert(0, str(SOURCE))
import rerankd.ray  # noqa: E402
from rerankd import Rerankd  # noqa: E402
from rerankd.batch import rank_batch  # noqa: E402

WORDS = ["wheat", "rye", "oat", "barley", "spelt"]
PROGRAM = os.environ.get("RERANKD")
SETTINGS = {"generator.threads": 1, "generator.reproducible": True, "position_bias.learn": False}


def lists(count):
    return [
        {"id": f"q{at}", "query": f"Which bread has {WORDS[at % 5]}?", "passages": [f"Bread {at} has {word}." for word in WORDS]}
        for at in range(count)
    ]


def job(given, folder, workers):
    """Write the ranked lists."""
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    rows = ray.data.read_parquet(given.lists, override_num_blocks=1)
    servers = {"client": given.address} if given.address else {"launch": {"binary": PROGRAM, "settings": SETTINGS, "wait": 600}}
    ranked = rerankd.ray.rerank(
        rows, **servers, workers=workers, batch_size=given.batch_size, method="query-generation"
    )
    ranked.write_parquet(str(folder))


def report(name, folder, expected, seconds):
    rows = sorted(pq.read_table(folder).to_pylist(), key=lambda row: int(row["id"][1:]))
    files = sorted((file.stat().st_mtime, pq.read_metadata(file).num_rows) for file in folder.iterdir())
    rate = sum(count for _, count in files[1:]) / max(files[-1][0] - files[0][0], 1e-9)
    ids = len({row["id"] for row in rows})
    print(f"{name}: {len(rows)} rows, {ids} ids, equal {rows == expected}, {seconds:.1f} s, {rate:.2f}/s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=1200)
    parser.add_argument("--batch-size", type=int, default=20)
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4])
    given = parser.parse_args()
    given.address = None
    with contextlib.ExitStack() as stack:
        base = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        given.lists = str(base / "lists.parquet")
        rows = lists(given.count)
        pq.write_table(pa.Table.from_pylist(rows), given.lists)
        if PROGRAM:
            client = stack.enter_context(Rerankd.launch(binary=PROGRAM, settings=SETTINGS, wait=600))
        else:
            command = [sys.executable, "-m", "rerankd.testing", "--seconds", "0.05"]
            server = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(server.terminate)
            given.address = server.stdout.readline().strip()
            client = Rerankd(given.address)
        since = time.monotonic()
        expected = []
        for at in range(0, given.count, given.batch_size):
            expected += rank_batch(rows[at : at + given.batch_size], client, method="query-generation")
        seconds = time.monotonic() - since
        print(f"one client: {given.count} rows, {seconds:.1f} s, {given.count / seconds:.2f}/s", flush=True)
        client.close()
        node = {"num_cpus": 4, "object_store_memory": 200 << 20}
        cluster = Cluster(initialize_head=True, head_node_args=node | {"include_dashboard": False})
        stack.callback(cluster.shutdown)
        cluster.add_node(**node)
        ray.init(address=cluster.address, log_to_driver=False)
        for workers in given.workers:
            folder, since = base / f"ranked-{workers}", time.monotonic()
            job(given, folder, workers)
            report(f"{workers} workers", folder, expected, time.monotonic() - since)
        ray.shutdown()


if __name__ == "__main__":
    main()
