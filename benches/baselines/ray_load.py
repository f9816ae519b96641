"""Run by the interpreter of Ray's environment: rows of Parquet files are embedded and stored, by Ray or alone.

python ray_load.py ray|one URL FOLDER

It says `ready`, then reads names of collections from its input, a line each. After each load it says how many `seconds`
it took.
"""

import os
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq

from semlex import BulkIngestConfig, SyncClient

WORKERS = 4
STORE_BYTES = 400 * 1024 * 1024
# A task of Ray reads files of up to so many bytes together, before compression: here about 6,600 rows. A larger file,
# such as one of 7,500 rows, is a task of its own.
TASK_BYTES = 3 * 1024 * 1024
WITHOUT_INDEXES = BulkIngestConfig(build_indexes=False)


def main() -> None:
    kind, url, folder = sys.argv[1:]
    if kind == "ray":
        serve(with_ray(url, folder))
        return
    with SyncClient(url, "static", use_reranking=False) as client:

        def load(name):
            collection = client.collection(name, bulk=WITHOUT_INDEXES)
            for file in sorted(Path(folder).glob("*.parquet")):
                collection.add_documents(pq.read_table(file))

        serve(load)


def with_ray(url, folder):
    os.environ["RAY_DATA_PARQUET_BIN_PACKING_BYTES"] = str(TASK_BYTES)
    import ray
    import ray.data

    from semlex.integrations.ray import SemlexEmbed, SemlexSink

    ray.init(
        num_cpus=WORKERS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        object_store_memory=STORE_BYTES,
        _node_ip_address="127.0.0.1",
    )

    def load(name):
        sink = SemlexSink(url, name, build_indexes=False)
        embed = SemlexEmbed("static", skip_stored=sink)
        rows = ray.data.read_parquet(folder).map_batches(embed, batch_size=None, batch_format="pyarrow")
        rows.write_datasink(sink)

    return load


def serve(load) -> None:
    print("ready", flush=True)
    for line in sys.stdin:
        started = time.perf_counter()
        load(line.strip())
        print("seconds", time.perf_counter() - started, flush=True)


main()
