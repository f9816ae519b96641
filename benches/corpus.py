"""Real documentation in English, cut into chunks, and queries as people might type them; made once by ``--prepare``.

The order is random but always the same, so that the first 100,000 chunks are a fair sample. A corpus of a million is
all of them and then mixed ones: the first half of one chunk with the second half of another.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import sys
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from benches.manuals import COMMON_WORDS, PACKAGES, paragraphs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SEED = 20261121
# A chunk ends with the paragraph in which it reaches a random number of words between these two; the mean is 114 then.
MIN_WORDS, MAX_WORDS = 55, 150
MIN_CHUNK_WORDS = 25
# Words of a query of each kind, from and to.
KINDS = {"short": (2, 3), "question": (7, 13), "long": (25, 40)}
QUERIES_PER_KIND = 60
# Queries are pieces of these chunks, so that smaller corpora answer them, too.
QUERY_CHUNKS = 10_000
# A change of what is made is a change of this number.
VERSION = 1
_SENTENCE_END = re.compile(r"(?<=[.!?:])\s+")
_PLAIN_WORD = re.compile(r"[A-Za-z]+(?:['-][A-Za-z]+)*")
MIN_LETTERS = 3


@dataclass(frozen=True, slots=True)
class Corpus:
    """The corpus as it lies on disk.

    Args:
        folder: Where.
    """

    folder: Path

    @property
    def exists(self) -> bool:
        """Whether it was made, by this version."""
        figures = self.folder / "figures.json"
        return figures.exists() and json.loads(figures.read_text())["made_by"] == _made_by()

    def chunks(self, number: int) -> list[str]:
        """The first `number` chunks, mixed ones behind the real ones."""
        with gzip.open(self.folder / "chunks.jsonl.gz", "rt", encoding="utf-8") as lines:
            real = [json.loads(line) for line in islice(lines, number)]
        return real + list(islice(_mixed(real), number - len(real)))

    def queries(self, kind: str) -> list[str]:
        """The queries of a kind."""
        return list(json.loads((self.folder / "queries.json").read_text())[kind])

    def figures(self) -> dict[str, Any]:
        """Chunks, words and distinct words of the real part."""
        return dict(json.loads((self.folder / "figures.json").read_text()))

    def describe(self) -> str:
        """The figures in a line."""
        figures = self.figures()
        words = figures["words"] / figures["chunks"]
        return (
            f"  corpus: {figures['chunks']:,} chunks of documentation, {words:.0f} words in the mean, "
            f"{figures['distinct_words']:,} distinct"
        )


def corpus_of(state: Path) -> Corpus:
    """The corpus in its place."""
    return Corpus(state / "corpus")


def prepare_corpus(state: Path) -> None:
    """Makes the corpus where it is not there: half a gigabyte is fetched, some minutes long."""
    corpus = corpus_of(state)
    if corpus.exists:
        return
    chance = random.Random(SEED)
    chunks = [chunk for page in paragraphs() for chunk in _chunks(page, chance)]
    chance.shuffle(chunks)
    corpus.folder.mkdir(parents=True, exist_ok=True)
    with gzip.open(corpus.folder / "chunks.jsonl.gz", "wt", encoding="utf-8", compresslevel=5) as lines:
        for chunk in chunks:
            lines.write(f"{json.dumps(chunk, ensure_ascii=False)}\n")
    queries = {kind: _queries(chunks[:QUERY_CHUNKS], least, most, chance) for kind, (least, most) in KINDS.items()}
    (corpus.folder / "queries.json").write_text(json.dumps(queries, indent=1))
    distinct: set[str] = set()
    for chunk in chunks:
        distinct.update(chunk.lower().split())
    figures = {"made_by": _made_by(), "chunks": len(chunks), "words": sum(len(chunk.split()) for chunk in chunks)}
    # Last, so that a half-made corpus is made again.
    (corpus.folder / "figures.json").write_text(json.dumps(figures | {"distinct_words": len(distinct)}, indent=1))
    print(corpus.describe(), file=sys.stderr)


def questions_of(chunks: list[str]) -> list[str]:
    """Questions from chunks that are not stored."""
    return _queries(chunks, *KINDS["question"], random.Random(SEED))


def _made_by() -> list[Any]:
    return [VERSION, SEED, MIN_WORDS, MAX_WORDS, *PACKAGES]


def _chunks(page: list[str], chance: random.Random) -> Iterator[str]:
    """The paragraphs of one file, packed into chunks; what is left at the end is a chunk if it is not tiny."""
    words: list[str] = []
    target = chance.randint(MIN_WORDS, MAX_WORDS)
    for paragraph in page:
        words += [*paragraph.split(" ")[:-1], f"{paragraph.rsplit(' ', 1)[-1]}\n"]
        while len(words) >= target:
            # A paragraph that is far too long is cut where the chunk is full.
            end = len(words) if len(words) <= 2 * target else target
            yield " ".join(words[:end])
            del words[:end]
            target = chance.randint(MIN_WORDS, MAX_WORDS)
    if len(words) >= MIN_CHUNK_WORDS:
        yield " ".join(words)


def _mixed(chunks: list[str]) -> Iterator[str]:
    chance = random.Random(SEED)
    while True:
        first, second = (chance.choice(chunks).split(" ") for _ in range(2))
        yield " ".join(first[: len(first) // 2] + second[len(second) // 2 :])


def _queries(chunks: list[str], least: int, most: int, chance: random.Random) -> list[str]:
    """Pieces of sentences: plain words in a row, a common one neither first nor last, each query once."""
    found: dict[str, None] = {}
    while len(found) < QUERIES_PER_KIND:
        sentence = chance.choice(_SENTENCE_END.split(chance.choice(chunks)))
        words = [word.strip(".,;:()\"'`*") for word in sentence.split()]
        length = chance.randint(least, most)
        if len(words) < length:
            continue
        start = chance.randint(0, len(words) - length)
        piece = words[start : start + length]
        ends = (piece[0], piece[-1])
        if all(map(_PLAIN_WORD.fullmatch, piece)) and all(
            len(word) >= MIN_LETTERS and word.lower() not in COMMON_WORDS for word in ends
        ):
            found[" ".join(piece)] = None
    return list(found)
