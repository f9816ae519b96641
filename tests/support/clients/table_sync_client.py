"""A program for tests: brings a collection in step with its followed tables, in small batches.

They are written one after another: of two at once, the second may be committed when the first stops the program.
"""

from semlex.proof.children import set_limits, stop_at
from tests.support.synchronised import opened

LIMITS = {
    "semlex.ingest.followed.run": {"BATCH_ROWS": 5, "METADATA_ROWS": 5, "WRITES_AT_ONCE": 1},
    "semlex.ingest.followed.changed_rows": {"KEYS_AT_ONCE": 7},
}


def main(url, collection, moment):
    stop_at(*moment)
    set_limits(LIMITS)
    with opened(url, collection) as store:
        store.tables.sync()
