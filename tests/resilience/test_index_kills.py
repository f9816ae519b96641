"""Two processes index a folder that changes under them, and one is killed: nothing lost, doubled or stale."""

import random
import re
from collections import defaultdict

import psycopg
import pytest

from tests.support.clients import indexing_client
from tests.support.programs import Program
from tests.support.retrievers import sync_opened
from tests.support.waiting import until, waiting
from tests.support.whole_collection import count_faults, is_made

FILES, SECTIONS = 12, 6
MOMENTS = [
    ("open the sources", "committed"),
    ("index files", "before"),
    ("index files", "copying"),
    ("index files", "worked"),
    ("index files", "committed"),
]
DIGITS = str.maketrans("0123456789", "bcfghjkmpt")


class ChangingFolder:
    """Files whose every section names the file and its version."""

    def __init__(self, folder):
        self.folder = folder
        self.versions = dict.fromkeys(range(FILES), 0)
        self.gone = set()
        for number in self.versions:
            self.write(number)

    def write(self, number):
        """A whole new file takes the place of the old one: no reader sees half of it."""
        word = self.word(number)
        sections = [f"# Section {part}\n\nThe {word} of part {part}, {word} again.\n" for part in range(SECTIONS)]
        new = self.folder / f".new-{number}"
        new.write_text("\n".join(sections))
        new.replace(self.folder / f"file{number}.md")

    def word(self, number, back=0):
        """A word for a file in its version, or `back` versions before: letters alone, so that it is one term."""
        return f"marker{number}v{self.versions[number] - back}".translate(DIGITS)

    def change_all(self):
        for number in self.versions:
            self.change(number, deletes=0)

    def change(self, number=None, deletes=0.15):
        """Writes a new version of a file, by default of any one, or deletes it with this probability."""
        number = random.randrange(FILES) if number is None else number
        self.versions[number] += 1
        if number not in self.gone and random.random() < deletes:
            self.gone.add(number)
            (self.folder / f"file{number}.md").unlink()
        else:
            self.gone.discard(number)
            self.write(number)


def check_rows(url):
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


def check_contents(url, changing):
    """After a run that nobody disturbed: each file as it is now, and by words only its newest version."""
    with sync_opened(url) as retriever:
        retriever.index(changing.folder)
        check_rows(url)
        for number, version in changing.versions.items():
            if number in changing.gone:
                continue
            hits = retriever.search(changing.word(number), 50, mode="keyword")
            parts = sorted(int(part) for hit in hits for part in re.findall(r"of part (\d+)", hit.content))
            assert parts == list(range(SECTIONS)), f"file {number}, version {version}"
            if version:
                assert not retriever.search(changing.word(number, back=1), mode="keyword")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("doing", "moment"), MOMENTS)
@pytest.mark.parametrize("is_new", [True, False], ids=["the first run", "a later run"])
def test_killed_runs_over_a_changing_folder(database_url, tmp_path, full, doing, moment, *, is_new):
    """One stops in the middle and is killed; the other goes on beside it, or waits for it and goes on then."""
    changing = ChangingFolder(tmp_path)
    with psycopg.connect(database_url, autocommit=True) as connection:
        for _ in range(12 if full else 1):
            if is_new:  # the first runs over an empty collection take another way
                connection.execute("DROP SCHEMA IF EXISTS semlex CASCADE")
            else:
                check_contents(database_url, changing)
            changing.change_all()
            with Program(indexing_client.main, database_url, changing.folder, (doing, moment, 1)) as victim:
                victim.until_stopped()
                changing.change()
                with Program(indexing_client.main, database_url, changing.folder) as other:
                    until(lambda: waiting(connection) or "indexed" in other.said)
                    changing.change()
                    victim.kill()
                    check_rows(database_url)
                    other.until_said("indexed", other.said.split().count("indexed") + 1)
                    changing.change()
            check_rows(database_url)
            check_contents(database_url, changing)
