"""Loading with Ray.

Texts of 60 words are embedded by the static model and stored with their keyword index, without a vector index.

- "four workers, vs one process": Ray Data with four workers against `add_documents`, file by file, on the same cores,
  in turn. Each has loaded once before: starting Ray and its workers is not counted
- "killed": the program that loads is killed three times and started again, and twenty of its workers are killed, at
  equal distances in the number of stored rows. Then each row is compared with the text that was given, and its vector
  with the one that the model makes in one process

`--million` kills while a million rows are stored.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from benches import kept_runs
from benches.measuring import alternated
from benches.preparing import python_of
from benches.servers import temporary_server, vacuum
from semlex import SyncClient
from semlex.embedding.static import StaticEmbedder

if TYPE_CHECKING:
    from benches.measuring import Bench

ROWS, QUICK_ROWS, MILLION = 300_000, 10_000, 1_000_000
RUNS, QUICK_RUNS = 3, 1
FILES, WORDS, VOCABULARY, SEED = 40, 60, 30_000, 7
# Workers and drivers that are killed.
KILLED, QUICK_KILLED = (20, 3), (3, 1)
RATE_BAR = 0.8
ENVIRONMENT = "ray"
EMBEDDING = "SemlexEmbed"  # in the name of a worker while it has a task
SCRIPT = Path(__file__).parent / "baselines" / "ray_load.py"
PAUSE = 0.05
COLLECTION = "killed"


def run(bench: Bench, *, quick: bool, state: Path) -> None:
    """Takes the figures."""
    python = python_of(state, ENVIRONMENT)
    rows = QUICK_ROWS if quick else ROWS
    killed_rows = MILLION if bench.million else rows
    if not python.exists():
        reason = "make its environment once: ./x bench --prepare"
        bench.unmeasured("four workers, vs one process", "rows/s", RATE_BAR, reason)
        bench.unmeasured("workers and drivers killed: rows lost, doubled or different", "rows", 0, reason)
        return
    with tempfile.TemporaryDirectory(prefix="semlex-bench-", dir="/tmp") as folder, temporary_server() as url:
        files = Path(folder) / "rows"
        write_rows(files, rows)
        rate(bench, python, url, files, rows, QUICK_RUNS if quick else RUNS)
        many = files
        if killed_rows != rows:
            many = Path(folder) / "many"
            write_rows(many, killed_rows)
        kill(bench, python, url, many, killed_rows, *(QUICK_KILLED if quick else KILLED))


def write_rows(folder: Path, count: int) -> None:
    """Parquet files of texts whose words are as frequent as those of texts are."""
    folder.mkdir()
    random = np.random.default_rng(SEED)
    words = np.array([f"word{number}" for number in range(VOCABULARY)])
    size = -(-count // FILES)
    for file in range(FILES):
        numbers = range(file * size, min((file + 1) * size, count))
        drawn = np.minimum(random.zipf(1.2, (len(numbers), WORDS)), VOCABULARY) - 1
        texts = [f"{' '.join(words[row])} row{number}" for row, number in zip(drawn, numbers, strict=True)]
        table = pa.table({"id": [f"row-{number}" for number in numbers], "text": texts, "number": list(numbers)})
        pq.write_table(table, folder / f"{file:04}.parquet")


class Program:
    """A process that loads, in the environment of Ray."""

    def __init__(self, python: Path, *arguments: object) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(kept_runs.ROOT / "python"),
            "PYTHONWARNINGS": "ignore",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_AUTH_MODE": "disabled",
            "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
        }
        command = [str(python), str(SCRIPT), *map(str, arguments)]
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - in close
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )
        self.told("ready")

    def told(self, word: str) -> float:
        """Waits for a line, and returns its number, if it has one."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            said, _, number = line.strip().partition(" ")
            if said == word:
                return float(number or 0)
        self.process.wait()
        self.check()
        raise RuntimeError(f"{SCRIPT.name} ended before it said {word!r}")

    def check(self) -> None:
        """Raises an error if the process has ended."""
        if self.process.poll() is not None:
            self._errors.seek(0)
            raise RuntimeError(f"{SCRIPT.name} ended with {self.process.returncode}: {self._errors.read()[-2000:]}")

    def load(self, collection: str) -> float:
        """Seconds that a load took."""
        self.begin(collection)
        return self.told("seconds")

    def begin(self, collection: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{collection}\n")
        self.process.stdin.flush()

    def workers(self) -> list[psutil.Process]:
        """Processes of Ray that embed or write now."""
        found = []
        with suppress(psutil.Error):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with suppress(psutil.Error):
                    if EMBEDDING in " ".join(child.cmdline()[:1]):
                        found.append(child)
        return found

    def close(self) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()
        self.process.wait()
        self._errors.close()


def rate(bench: Bench, python: Path, url: str, files: Path, rows: int, runs: int) -> None:
    """Four workers against one process."""
    alone, workers = Program(python, "one", url, files), Program(python, "ray", url, files)
    count = 0

    def timed(program: Program) -> float:
        nonlocal count
        count += 1
        name = f"c{count}"
        seconds = program.load(name)
        with SyncClient(url, "none", use_reranking=False) as client:
            assert client.collection(name, create=False).count() == rows
            client.drop(name)
        vacuum(url)
        return seconds

    for program in (workers, alone):
        timed(program)
    ours, one = alternated(lambda: timed(workers), lambda: timed(alone), runs)
    bench.speed("four workers, vs one process", ours, one, amount=rows, unit="rows/s", bar=RATE_BAR)
    workers.close()
    alone.close()


def kill(bench: Bench, python: Path, url: str, files: Path, rows: int, workers: int, drivers: int) -> None:
    """Workers and drivers are killed, in turn, until all rows are stored."""
    events = workers + drivers
    is_driver = [number % (events // drivers) == events // drivers - 1 for number in range(events)]
    started = time.perf_counter()
    program = Program(python, "ray", url, files)
    program.begin(COLLECTION)
    with psycopg.connect(url, autocommit=True) as connection:
        for number in range(events):
            while stored(connection) < rows * number // (events + 1):
                program.check()
                time.sleep(PAUSE)
            if is_driver[number]:
                program.process.kill()
                program.close()
                program = Program(python, "ray", url, files)
                program.begin(COLLECTION)
                continue
            while not (busy := program.workers()):
                program.check()
                time.sleep(PAUSE)
            busy[number % len(busy)].kill()
    program.told("seconds")
    program.close()
    seconds = time.perf_counter() - started
    shown = f"{rows:,} rows, {events - sum(is_driver)} workers and {sum(is_driver)} drivers killed"
    wrong = differences(url, files)
    bench.at_most(f"{shown}: rows lost, doubled or different", wrong["rows"], unit="rows", bar=0)
    bench.at_most(f"{shown}: vectors that differ", wrong["vectors"], unit="vectors", bar=0)
    bench.at_least(f"{shown}: rate", rows / seconds, unit="rows/s", bar=None)


def stored(connection: psycopg.Connection[Any]) -> int:
    """Rows of the collection that is loaded; 0 before it is made."""
    with suppress(psycopg.errors.UndefinedTable):
        row = connection.execute(f"SELECT count(*) FROM semlex.{COLLECTION}_chunk").fetchone()  # noqa: S608
        return int(row[0]) if row else 0
    return 0


def differences(url: str, files: Path) -> dict[str, int]:
    """Rows and vectors that are not as given."""
    texts: dict[str, tuple[str, int]] = {}
    for file in files.glob("*.parquet"):
        table = pq.read_table(file)
        columns = (table[name].to_pylist() for name in ("id", "text", "number"))
        texts.update((key, (text, number)) for key, text, number in zip(*columns, strict=True))
    wrong, model, after = {"rows": 0, "vectors": 0}, StaticEmbedder(), None
    with SyncClient(url, "none", use_reranking=False) as client:
        collection = client.collection(COLLECTION, create=False)
        while (batch := collection.tables.read(after=after, limit=10_000)).num_rows:
            after = batch["id"][-1].as_py()
            ids, found = batch["id"].to_pylist(), batch["text"].to_pylist()
            numbers = [json.loads(one)["number"] for one in batch["metadata"].to_pylist()]
            wrong["rows"] += sum(
                texts.pop(key, None) != (text, number) for key, text, number in zip(ids, found, numbers, strict=True)
            )
            vectors = batch["vector"].flatten().to_numpy().reshape(len(ids), -1)
            wrong["vectors"] += int((vectors != model.embed_documents(found)).any(axis=1).sum())
    wrong["rows"] += len(texts)
    return wrong
