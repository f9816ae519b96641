"""Two processes index a folder that changes under them, and are killed at random: nothing lost, doubled or stale."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import time
from collections import defaultdict
from typing import TYPE_CHECKING

import psycopg
import pytest

from semlex.retriever.synchronous import SyncRetriever
from semlex.testing import HashEmbedder
from tests.support.folders import CLIENTS
from tests.support.whole_collection import count_faults, is_made

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLIENT = CLIENTS / "indexing_client.py"
FILES, SECTIONS = 12, 6
KILLS_BETWEEN_CHECKS = 5
DIGITS = str.maketrans("0123456789", "bcfghjkmpt")


class ChangingFolder:
    """Files whose every section names the file and its version."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.versions = dict.fromkeys(range(FILES), 0)
        self.gone: set[int] = set()
        for number in self.versions:
            self.write(number)

    def write(self, number: int) -> None:
        """A whole new file takes the place of the old one: no reader sees half of it."""
        word = self.word(number)
        sections = [f"# Section {part}\n\nThe {word} of part {part}, {word} again.\n" for part in range(SECTIONS)]
        new = self.folder / f".new-{number}"
        new.write_text("\n".join(sections))
        new.replace(self.folder / f"file{number}.md")

    def word(self, number: int, back: int = 0) -> str:
        """A word for a file in its version, or `back` versions before: letters alone, so that it is one term."""
        return f"marker{number}v{self.versions[number] - back}".translate(DIGITS)

    def change(self) -> None:
        number = random.randrange(FILES)
        self.versions[number] += 1
        if number not in self.gone and random.random() < 0.15:
            self.gone.add(number)
            (self.folder / f"file{number}.md").unlink()
        else:
            self.gone.discard(number)
            self.write(number)


@pytest.fixture
def changing(tmp_path: Path) -> ChangingFolder:
    folder = tmp_path / "manual"
    folder.mkdir()
    return ChangingFolder(folder)


def started(url: str, folder: Path, runs: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, str(CLIENT), url, str(folder), str(runs)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def check_rows(url: str) -> None:
    """What holds at every moment, whoever was killed where."""
    with psycopg.connect(url) as connection:
        if not is_made(connection, "default_collection"):
            return
        assert count_faults(connection, "default_collection") == {}
        rows = connection.execute("SELECT document_id, chunk_text FROM semlex.default_collection_chunk").fetchall()
    versions = defaultdict(set)
    for document, text in rows:
        versions[document] |= {word.strip(",") for word in text.split() if word.startswith("marker")}
    assert all(len(words) == 1 for words in versions.values()), "a document of two versions"


def check_contents(url: str, changing: ChangingFolder) -> None:
    """After a run that nobody disturbed: each file as it is now, and by words only its newest version."""
    done = started(url, changing.folder, 1)
    assert done.communicate()[0].split() == ["open", "0"]
    assert done.returncode == 0
    check_rows(url)
    with SyncRetriever(url, HashEmbedder(8), use_reranking=False) as retriever:
        for number, version in changing.versions.items():
            if number in changing.gone:
                continue
            hits = retriever.search(changing.word(number), 50, mode="keyword")
            parts = sorted(int(part) for hit in hits for part in re.findall(r"of part (\d+)", hit.content))
            assert parts == list(range(SECTIONS)), f"file {number}, version {version}"
            if version:
                assert not retriever.search(changing.word(number, back=1), mode="keyword")


@pytest.fixture
def clients() -> Iterator[list[subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []
    yield running
    for client in running:
        client.kill()
        client.communicate()


@pytest.mark.timeout(3600)
def test_killed_runs_over_a_changing_folder(
    database_url: str, changing: ChangingFolder, clients: list[subprocess.Popen[str]], full: bool
) -> None:
    kills = 100 if full else 2
    killed = 0
    while killed < kills:
        while len(clients) < 2:
            clients.append(started(database_url, changing.folder))
        victim = clients.pop(random.randrange(2))
        assert victim.stdout is not None
        # From the set-up of the first run to the middle of later ones; sometimes before the process has even opened.
        if random.random() < 0.9:
            assert victim.stdout.readline() == "open\n"
        until = time.monotonic() + random.uniform(0.0, 0.6)
        while time.monotonic() < until:
            changing.change()
            time.sleep(0.02)
        assert victim.poll() is None, "a run failed"
        victim.kill()
        victim.communicate()
        killed += 1
        check_rows(database_url)
        if killed % KILLS_BETWEEN_CHECKS == 0 or killed == kills:
            for client in clients:
                client.kill()
                client.communicate()
            killed += len(clients)
            clients.clear()
            check_contents(database_url, changing)
            if random.random() < 0.7:  # the first runs over an empty collection take another way
                with psycopg.connect(database_url, autocommit=True) as connection:
                    connection.execute("DROP SCHEMA semlex CASCADE")
