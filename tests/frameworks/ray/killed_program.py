"""A program that loads rows with Ray, until it is killed: `python -m … CLUSTER URL FOLDER ROWS`."""

import os
import sys
from pathlib import Path

import ray
import ray.data

from semlex.integrations.ray import SemlexEmbed
from tests.frameworks.ray.killed_work import DRIVER, MortalModel, MortalSink

BLOCKS = 8


def text_of(number):
    return f"text {number:06}"


def load(url, folder, rows):
    sink = MortalSink(url, "killed", folder)
    items = [{"id": f"row-{number}", "text": text_of(number), "number": number} for number in range(rows)]
    dataset = ray.data.from_items(items, override_num_blocks=BLOCKS)
    dataset.map_batches(SemlexEmbed(MortalModel(folder), skip_stored=sink)).write_datasink(sink)


if __name__ == "__main__":
    cluster, url, folder, rows = sys.argv[1:]
    (Path(folder) / DRIVER).write_text(str(os.getpid()))
    ray.init(cluster, log_to_driver=False)
    load(url, Path(folder), int(rows))
