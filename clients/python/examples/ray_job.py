"""Rank lists with Ray Data: python ray_job.py LISTS.jsonl HOST:PORT FOLDER.

A line has an id, a query and passages. The folder gets Parquet files. The same command continues an interrupted job.
Without `client`, every worker launches a server.
"""

import os
import sys

import ray
from ray.data.checkpoint import CheckpointConfig

import rerankd.ray


def main(lists: str, address: str, folder: str) -> None:
    # Ray records the ids that are done. The path may be one of a cloud; a folder must be shared by all machines.
    done = CheckpointConfig("id", os.path.abspath(f"{folder}-done"), delete_checkpoint_on_success=False)
    ray.data.DataContext.get_current().checkpoint_config = done
    ranked = rerankd.ray.rerank(ray.data.read_json(lists), client=address, workers=2, cpus=0)
    ranked.write_parquet(os.path.abspath(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
