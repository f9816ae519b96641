"""Collections with partitions, in tests that say nothing about them (``pytest --partitions N``)."""

import os

from semlex.options.collection import BUILT_IN, CollectionSettings


def partition_collections(number):
    """Gives every new collection of this process, and of commands that it starts, so many partitions."""
    if not number:
        return
    BUILT_IN["partitions"] = number
    made = CollectionSettings.__init__
    names = list(CollectionSettings.__dataclass_fields__)
    made.__defaults__ = tuple(
        number if name == "partitions" else value for name, value in zip(names, made.__defaults__ or (), strict=True)
    )
    os.environ["SEMLEX_PARTITIONS"] = str(number)
