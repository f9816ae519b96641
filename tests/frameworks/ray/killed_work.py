"""Models and sinks whose workers, and whose driver, are killed at chosen places."""

import os
import signal

import numpy as np
import psutil
import psycopg

from semlex.embedding.base import BaseEmbedder, EmbedderIdentity
from semlex.integrations.ray import SemlexSink
from tests.support.waiting import until

DIMENSIONS = 8
FIRST_ROWS = 100
DRIVER = "driver"  # holds the process id of the driver


def vectors_of(texts):
    made = np.array([np.frombuffer(text.encode().ljust(DIMENSIONS)[-DIMENSIONS:], np.uint8) for text in texts])
    return made.reshape(-1, DIMENSIONS).astype(np.float32)


class Deaths:
    """Kills that wait in a folder, one file each; who takes one dies of it."""

    def __init__(self, folder):
        self.folder = folder

    def plan(self, place, times):
        for number in range(times):
            (self.folder / f"{place}-{number}").touch()

    def left(self):
        return sorted(one.name for one in self.folder.glob("*-*"))

    def die(self, place):
        """Ends this process, and its driver if the place says so, if a kill is planned here."""
        for planned in sorted(self.folder.glob(f"{place}-*")):
            try:
                planned.unlink()
            except FileNotFoundError:  # another worker has taken it
                continue
            os.kill(int((self.folder / DRIVER).read_text()) if place == DRIVER else os.getpid(), signal.SIGKILL)
            return


def is_stored(url, text):
    """Whether the rows before a text are stored; waits for them if the text is behind the first batches."""
    number = int(text.removeprefix("text "))
    if number < FIRST_ROWS:
        return False
    with psycopg.connect(url, autocommit=True) as connection:

        def earlier_rows():
            try:
                found = connection.execute("SELECT FROM semlex.killed_chunk WHERE chunk_text < %s LIMIT 1", [text])
            except psycopg.errors.UndefinedTable:  # the sink makes it with its first batch
                return False
            return found.rowcount

        return until(earlier_rows, "rows of earlier batches are stored")


class MortalModel(BaseEmbedder):
    """Dies on the way, and notes each text that it has embedded."""

    def __init__(self, folder, url=""):
        self._deaths, self._url = Deaths(folder), url

    @property
    def identity(self):
        return EmbedderIdentity("test/mortal", "1", DIMENSIONS, None, "mean", False)

    def embed_documents(self, texts):
        self._deaths.die("embedding")
        if self._url and self._deaths.left() and is_stored(self._url, texts[0]):
            self._deaths.die("afterwards")
        with (self._deaths.folder / "embedded").open("a", encoding="utf-8") as file:
            file.write("".join(f"{text}\n" for text in texts))
        return vectors_of(texts)


class MortalSink(SemlexSink):
    """Dies before, between and after its batches, and notes connections of its database and processes of Ray."""

    def __init__(self, url, collection, folder, **options):
        super().__init__(url, collection, **options)
        self._deaths = Deaths(folder)

    def write(self, blocks, ctx):
        def dying():
            for block in blocks:
                self._deaths.die("before")
                yield block
                self._deaths.die("between")

        written = super().write(dying(), ctx)
        with psycopg.connect(self.address.url or "") as connection:
            open_ones = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
            commands = (process.info["cmdline"] for process in psutil.process_iter(["cmdline"]))
            processes = sum(command[0].startswith("ray::") for command in commands if command)
            with (self._deaths.folder / "connections").open("a", encoding="utf-8") as file:
                file.write(f"{open_ones.fetchall()[0][0]} {processes}\n")
        self._deaths.die("after")
        self._deaths.die(DRIVER)
        return written
