"""Rank lists with Ray Data: python ray_job.py LISTS.jsonl HOST:PORT FOLDER.

A line has an id, a query and passages. The folder gets Parquet files. Without `client`, every worker launches a server.
"""

import sys

import ray

import rerankd.ray


def main(lists: str, address: str, folder: str) -> None:
    rerankd.ray.rerank(ray.data.read_json(lists, lines=True), folder, client=address, workers=2)


if __name__ == "__main__":
    main(*sys.argv[1:])
