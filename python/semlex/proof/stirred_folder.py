"""A folder to which much happens at once, and which remembers every text that a file of it ever had."""

from __future__ import annotations

import hashlib
import itertools
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from pathlib import Path

WORDS = ("key", "shutter", "zenith", "vault", "ship", "banana", "console", "park")
FILES = 24
NAMES = [
    f"{'sub/' if number % 3 else ''}{number}{suffix}"
    for number, suffix in enumerate((".md", ".txt", ".md", ".py", ".md") * 8)
]

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
        root: Where it is made.
        chance: What decides.

    Attributes:
        texts: SHA-256 of the bytes of every file that ever was here -> its text.
        words: The words that single sections of those texts have -> the same.
    """

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root, self._chance = root, chance
        self.texts: dict[bytes, str] = {}
        self.words: dict[str, bytes] = {}
        root.mkdir()
        for _ in range(FILES):
            self._write(self._free())

    def stir(self, *, deletes: bool = True) -> None:
        """Rewrite most of the files and touch some; on request, also delete, create and move some."""
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
