"""Rank lists with Beam: python beam_job.py LISTS.jsonl HOST:PORT FOLDER [OPTIONS OF BEAM].

A line has an id, a query and passages. The folder gets Parquet files.
"""

import json
import sys

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from rerankd.batch import arrow_schema, rank_batch


def main(lists: str, address: str, folder: str, *options: str) -> None:
    with beam.Pipeline(options=PipelineOptions(list(options))) as pipeline:
        (
            pipeline
            | beam.io.ReadFromText(lists)
            | beam.Map(json.loads)
            | beam.BatchElements(min_batch_size=16, max_batch_size=64)
            # Beam misreads the types of a function with keyword arguments.
            | beam.FlatMap(lambda batch: rank_batch(batch, address))
            | beam.io.WriteToParquet(f"{folder}/part", arrow_schema(), file_name_suffix=".parquet")
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
