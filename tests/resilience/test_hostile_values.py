"""Hostile values at every door: stored as they are, or refused by an error of ours with nothing written."""

import random

import psycopg
import pytest

from semlex.proof import hostile_values as hostile
from semlex.proof.hostile import Doors
from semlex.store.schema.names import Names
from tests.support.retrievers import sync_opened


@pytest.mark.timeout(3600)
def test_hostile_values(database_url, full):
    seed, tries = random.randrange(2**32), 20_000 if full else 400
    draw = random.Random(seed)
    with (
        sync_opened(database_url, hostile.DIMENSIONS) as retriever,
        psycopg.connect(database_url, autocommit=True) as connection,
    ):
        doors = Doors(retriever, database_url, connection, Names("semlex", "default_collection"))
        refused = dict.fromkeys(doors.calls, 0)
        doors.begin()
        for number in range(tries):
            door = draw.choice(doors.calls)
            try:
                refused[door] += door(draw)
            except Exception as error:
                error.add_note(f"{door.__name__}, try {number} of seed {seed}")
                raise
        assert all(0 < count < tries for count in refused.values())
        # After all of it: everything that was stored and nothing else, by both ways of searching.
        doors.check()
