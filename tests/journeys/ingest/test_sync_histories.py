"""Whatever happens to a folder, it ends in the collection as a new index of it would."""

import os
import random
import shutil
from collections import Counter

import pytest

from semlex.proof.folders import age, write
from tests.support.synchronised import CountingEmbedder, contents, counts, opened
from tests.support.whole_collection import answers

NAMES = ("a.md", "b.md", "c.md", "sub/a.md", "sub/b.md", "x.py")
WORDS = ("key", "shutter", "zenith", "vault", "ship", "banana", "console", "park")


def contents_of(path):
    """Return a file's bytes, with its name if that is a part of what is embedded."""
    return path.name if path.suffix == ".py" else path.suffix, path.read_bytes()


class Folder:
    """A folder whose files a `random.Random` writes, renames, swaps, copies, deletes and touches."""

    def __init__(self, root, chance):
        self.root, self._chance = root, chance
        root.mkdir()
        write(root / "always.md", "# Always\n\nThis one stays, so that the folder is never empty.\n")

    def happen(self):
        acts = (self._write, self._write, self._rename, self._rename, self._swap, self._copy, self._delete, self._touch)
        there = [self.root / name for name in NAMES if (self.root / name).exists()]
        act = self._chance.choice(acts)
        (act if there else self._write)(there)

    def _target(self):
        target = self.root / self._chance.choice(NAMES)
        target.parent.mkdir(exist_ok=True)
        return target

    def _write(self, there):
        sections = [
            f"# {self._chance.choice(WORDS)}\n\n" + " ".join(self._chance.choices(WORDS, k=3))
            for _ in range(self._chance.randint(0, 3))
        ]
        path = self._target()
        write(path, "\n\n".join(sections))
        if self._chance.random() < 0.3:
            os.utime(path)  # as young as most files are when they are read

    def _rename(self, there):
        self._chance.choice(there).rename(self._target())

    def _swap(self, there):
        one, other = (self._chance.choice(there) for _ in range(2))
        if one != other:
            one.rename(self.root / "aside")
            other.rename(one)
            (self.root / "aside").rename(other)

    def _copy(self, there):
        source, target = self._chance.choice(there), self._target()
        if source != target:
            shutil.copy2(source, target)

    def _delete(self, there):
        self._chance.choice(there).unlink()

    def _touch(self, there):
        age(self._chance.choice(there))

    def files(self):
        return sorted(path for path in self.root.rglob("*") if path.is_file())


def chunks_of(store, folder, state):
    """How many chunks files of these contents have, as they are stored."""
    number = Counter(chunk.source_document for chunk in store.list_chunks(limit=1_000))
    total, left = 0, Counter(state)
    for path in folder.files():
        if left[contents_of(path)] > 0:
            left[contents_of(path)] -= 1
            total += number[path.relative_to(folder.root).as_posix()]
    return total


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_any_history_ends_as_a_new_index_of_the_folder(database_url, tmp_path, full):
    for number in range(1_000 if full else 6):
        _try_history(database_url, tmp_path / f"docs {number}", number, random.randrange(2**32))


def _try_history(url, root, number, seed):
    chance = random.Random(seed)
    folder, before = Folder(root, chance), Counter()
    with opened(url, f"kept_{number}") as kept, opened(url, f"new_{number}") as new:
        for step in range(steps := chance.randint(2, 12)):
            folder.happen()
            if step < steps - 1 and chance.random() < 0.6:
                continue
            CountingEmbedder.texts = 0
            planned = kept.sync(root, dry_run=True).plan
            report = kept.sync(root)
            assert report.plan == planned
            added, changed, moved, _, unchanged = counts(report)
            now = Counter(contents_of(path) for path in folder.files())
            assert CountingEmbedder.texts == report.run.embedded <= chunks_of(kept, folder, now - before)
            assert now.total() == added + changed + moved + unchanged
            assert kept.sync(root).plan.is_empty
            before = now
        new.index(root)
        assert contents(kept) == contents(new)
        assert answers(kept) == answers(new)
        assert {one.id for one in kept.list_chunks(limit=1_000)} == {one.id for one in new.list_chunks(limit=1_000)}
        kept.drop_collection()
        new.drop_collection()
