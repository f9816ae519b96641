"""Folders whose files change while processes, some of them killed, index and sync them; in the end all is correct."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

from semlex.proof.check import Fault, check_present, expect, whole_documents
from semlex.proof.children import Child
from semlex.proof.kills import Killed, Limits, Task, run
from semlex.proof.scenarios import Tries

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from pathlib import Path

    from semlex.embedding.base import Embedder
    from semlex.store.schema.names import Names

WORDS = ("key", "shutter", "zenith", "vault", "ship", "banana", "console", "park")
FILES = 24
NAMES = [
    f"{'sub/' if number % 3 else ''}{number}{suffix}"
    for number, suffix in enumerate((".md", ".txt", ".md", ".py", ".md") * 8)
]
SIZES = {"chunk_tokens": 32, "overlap_tokens": 0}
STIRS = 3

_clock = itertools.count(1)


def write(path: Path, text: str) -> None:
    """Write a file with a modification time that is long past and unique."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    age(path)


def age(path: Path) -> None:
    """Give a file a modification time that is long past and unique."""
    moment = 1_600_000_000 + next(_clock)
    os.utime(path, (moment, moment))


class StirredFolder:
    """Files of a few sections, each with a unique word.

    Args:
        root: Path of the folder, which is made.
        chance: Random numbers for the changes.

    Attributes:
        texts: Text of every file that was ever in the folder, by the SHA-256 of its bytes.
        words: Unique word of a section -> SHA-256 of the file that contains it.
    """

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root, self._chance = root, chance
        self.texts: dict[bytes, str] = {}
        self.words: dict[str, bytes] = {}
        root.mkdir()
        for _ in range(FILES):
            self._write(self._free())

    def stir(self, *, deletes: bool = True) -> None:
        """Rewrite most of the files and touch some; if `deletes`, also delete, create and move some."""
        there = [self.root / name for name in NAMES if (self.root / name).exists()]
        self._chance.shuffle(there)
        if deletes:
            # Bytes of another format, and code under another name, do not count as moved.
            moved = [path for path in there if path.suffix == ".md"][:4]
            others = [path for path in there if path not in moved]
            deleted, there = others[:5], others[5:]
            for _ in deleted:
                self._write(self._free())
            for path in deleted:
                path.unlink()
            self._move(moved)
        for path in there[:3]:
            moment = 1_500_000_000 + self._chance.randrange(10**8)
            os.utime(path, (moment, moment))
        for path in there[3:]:
            self._write(path)

    def _move(self, moved: Sequence[Path]) -> None:
        """Swap the names of two files, and rename the others."""
        asides = [path.rename(path.with_name(f".{path.name}")) for path in moved]
        for aside, path in zip(asides[:2], reversed(moved[:2]), strict=True):
            aside.rename(path)
        for aside in asides[2:]:
            aside.rename(self._free(aside.suffix))

    def _free(self, suffix: str = "") -> Path:
        free = [self.root / name for name in NAMES if name.endswith(suffix) and not (self.root / name).exists()]
        path = self._chance.choice(free)
        path.parent.mkdir(exist_ok=True)
        return path

    def _write(self, path: Path) -> None:
        own = ["".join(self._chance.choices("bcdfghjklm", k=9)) for _ in range(self._chance.randint(4, 6))]
        text = "\n\n".join(self._section(path, word) for word in own)
        digest = hashlib.sha256(text.encode()).digest()
        self.texts[digest] = text
        self.words |= dict.fromkeys(own, digest)
        # No reader sees half of a file.
        new = path.with_name(f".new-{path.name}")
        write(new, text)
        if self._chance.random() < 0.3:
            os.utime(new)  # as young as most files are when they are read
        new.replace(path)

    def _section(self, path: Path, word: str) -> str:
        words = " ".join([*self._chance.choices(WORDS, k=5), word, *self._chance.choices(WORDS, k=3)])
        if path.suffix == ".py":
            return f"def {self._chance.choice(WORDS)}():\n    return '{words}'"
        return f"# {self._chance.choice(WORDS)}\n\n{words}."

    def digests(self) -> dict[str, bytes]:
        """Return the present files: name -> SHA-256 of the bytes."""
        return {
            path.relative_to(self.root).as_posix(): hashlib.sha256(path.read_bytes()).digest()
            for path in self.root.rglob("*")
            if path.is_file()
        }


def check_files(url: str, names: Names, folder: StirredFolder, model: Embedder, *, complete: bool) -> None:
    """Check that every document equals a text that its file had; if `complete`, the present text."""
    documents = whole_documents(url, names, model)
    if documents is None:
        expect(not complete, "lost", "the collection does not exist")
        return
    for name, digest, stored in documents:
        text = folder.texts.get(digest)
        expect(text is not None, "wrong", f"{name}: a text that its file never had")
        expect(stored.split() == str(text).split(), "wrong", f"{name}: parts of two texts, or only a part of one")
    if complete:
        check_present({name: digest for name, digest, _ in documents}, folder.digests(), "file")


class Indexing(Killed):
    """Kill a process that indexes a folder, most of whose files have changed."""

    name = "kill-index"
    what = "a folder indexed after most of its files have changed"
    deletes = False

    def begin(self) -> None:
        super().begin()
        self.folder = StirredFolder(self.site.new_folder(self.name), self.chance)

    def limits(self) -> Limits:
        return {
            "semlex.ingest.run": {"BATCH_CHUNKS": self.chance.choice((1, 10, 10_000))},
            "semlex.store.write.deletes": {"BATCH_DOCUMENTS": 2},
        }

    def draw(self) -> str:
        if self.chance.random() < 0.2:
            self.drop()
        self.folder.stir(deletes=self.deletes)
        return str(self.folder.root)

    @staticmethod
    def do(task: Task) -> None:
        task.collection.index(task.arguments, **SIZES)  # type: ignore[arg-type]

    def check_killed(self, acknowledged: int, arguments: Any) -> None:
        del acknowledged, arguments
        check_files(self.site.url, self.names, self.folder, self.model, complete=False)

    def check(self) -> None:
        check_files(self.site.url, self.names, self.folder, self.model, complete=True)
        self._check_words()

    def _check_words(self) -> None:
        """Check that a section's unique word is found in every file with that section, and nowhere else."""
        stored = Counter(self.folder.digests().values())
        for word, digest in self.chance.sample(sorted(self.folder.words.items()), 3):
            hits = self.collection.search(word, 10, mode="keyword")
            is_right = len(hits) == stored[digest] and all(word in hit.content for hit in hits)
            expect(is_right, "wrong", f"a word that is in {stored[digest]} files is found {len(hits)} times")


class Syncing(Indexing):
    """Kill a process that syncs a folder after its files were changed, made, moved and deleted."""

    name = "kill-sync"
    what = "a folder synced after its files were changed, made, moved and deleted"
    deletes = True

    @staticmethod
    def do(task: Task) -> None:
        task.collection.sync(task.arguments, **SIZES)  # type: ignore[arg-type]


class FolderHistories(Syncing):
    """Change a folder while two processes sync it; then sync it once more, undisturbed."""

    name = "folder"
    group = ""
    what = "a folder whose files change, move and vanish while two processes keep it in step"
    weight = 1.0

    def attempt(self) -> Tries:
        arguments = self.draw()
        order = self.order(self.site.application(self.name), arguments, is_killed=False)
        with Child(run, order) as one, Child(run, order) as other:
            for _ in range(STIRS):
                self.folder.stir()
                check_files(self.site.url, self.names, self.folder, self.model, complete=False)
            for child in (one, other):
                # A file that vanishes or changes while it is read is reported, and read by the next run.
                if child.ended() != 0:
                    raise Fault("wrong", f"a run over a changing folder failed: {child.said[-2000:]}")
        self.finish(arguments)
        self.site.sabotage(self.names)
        self.check()
        return Tries(tries=STIRS)
