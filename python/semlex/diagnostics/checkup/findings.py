"""What the ranks of many headings say of a collection."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from semlex.diagnostics.checkup.rank import DEPTH, GRID
from semlex.types.checkups import AskedHeading, DocumentCheckup, Dominating, Share, WeightCheckup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from semlex.diagnostics.checkup.headings import Section
    from semlex.diagnostics.checkup.rank import Standing
    from semlex.types.checkups import CheckupCode

TOP = 3
DEPTHS = (1, 3, 5, 10)
# Below, a weight that looks better by a few points is as likely luck.
MIN_HEADINGS = 30
FOLDS = 5
Z95 = 1.959964
# A document outranks the rest where it has so many hits more than its size lets expect, and so many at least.
DOMINATING_TIMES, DOMINATING_HITS = 3.0, 5
_SEED = 1

DocumentName = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """One heading that was asked.

    Attributes:
        section: Its section.
        heading: As it was asked.
        chunk_id: Of the section's chunk that came farthest.
        standing: Where it stands.
        before: Source and name of the documents of the first hits that are not the section's, best first.
        same: Whether one of these has the text of the section's chunk.
    """

    section: Section
    heading: str
    chunk_id: str
    standing: Standing
    before: Sequence[DocumentName]
    same: bool

    @property
    def is_found(self) -> bool:
        """Whether the section is among the first hits."""
        return is_within(self.standing.rank, TOP)

    @property
    def code(self) -> CheckupCode:
        """Why it is not."""
        if self.same:
            return "duplicate"
        if self.standing.shares_word is False:
            return "no_shared_word"
        if self.standing.rank is not None:
            return "below_top_k"
        return (
            "beyond_keyword_depth"
            if self.standing.by_leg is None and self.standing.shares_word
            else ("beyond_vector_depth")
        )


def is_within(rank: int | None, depth: int) -> bool:
    """Whether a place is among the first."""
    return rank is not None and 0 < rank <= depth


def share_of(found: int, asked: int) -> Share:
    """A share with its interval: E. B. Wilson, "Probable Inference, the Law of Succession", JASA 1927."""
    if not asked:
        return Share(0, 0, 0.0, (0.0, 1.0))
    share, square = found / asked, Z95**2
    centre = (share + square / (2 * asked)) / (1 + square / asked)
    half = Z95 / (1 + square / asked) * math.sqrt(share * (1 - share) / asked + square / (4 * asked**2))
    return Share(found, asked, share, (max(0.0, centre - half), min(1.0, centre + half)))


def of_documents(outcomes: Sequence[Outcome], chunks: Mapping[DocumentName, int]) -> tuple[DocumentCheckup, ...]:
    """Each document with its headings: first those of which none finds its section, the largest first."""
    by_document: dict[DocumentName, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        by_document[one.section.source, one.section.document].append(one)
    listed = [
        DocumentCheckup(source, document, chunks.get((source, document), 0), tuple(map(_asked, own)))
        for (source, document), own in by_document.items()
    ]
    return tuple(sorted(listed, key=lambda one: (not one.is_never_found, -len(one.missed), one.source, one.document)))


def _asked(one: Outcome) -> AskedHeading:
    code = None if one.is_found else one.code
    before = tuple(name for _, name in one.before)
    return AskedHeading(one.heading, one.section.path, one.chunk_id, one.standing.rank, code, before)


def dominating(outcomes: Sequence[Outcome], chunks: Mapping[DocumentName, int]) -> tuple[Dominating, ...]:
    """Documents that are among the first hits of other documents' headings far more often than by their size."""
    hits: Counter[DocumentName] = Counter()
    for one in outcomes:
        own = (one.section.source, one.section.document)
        hits.update(name for name in one.before[:TOP] if name != own)
    total, every = hits.total(), sum(chunks.values())
    found = [
        Dominating(*name, count, count / total, chunks.get(name, 0) / every)
        for name, count in hits.items()
        if name[1] and count >= DOMINATING_HITS
    ]
    return tuple(
        sorted(
            (one for one in found if one.share >= DOMINATING_TIMES * one.expected),
            key=lambda one: (-one.hits, one.source, one.document),
        )
    )


def weight_checkup(outcomes: Sequence[Outcome], default: float) -> WeightCheckup | None:
    """What another weight would find, measured on headings that did not choose it; None where one leg was searched."""
    ranks = [one.standing.by_weight for one in outcomes if one.standing.by_weight is not None]
    legs = [one.standing.by_leg for one in outcomes if one.standing.by_leg is not None]
    if len(ranks) < 2 or len(ranks) < len(outcomes):  # noqa: PLR2004 - nothing could be held out
        return None
    values = np.array(ranks)
    found = ((values > 0) & (values <= TOP)).astype(np.float64)
    usual = int(np.abs(GRID - default).argmin())
    count = len(found)
    held_out = np.zeros(count)
    for part in np.array_split(np.random.default_rng(_SEED).permutation(count), min(FOLDS, count)):
        rest = np.setdiff1d(np.arange(count), part)
        held_out[part] = found[part, _best(found[rest], usual)]
    differences = held_out - found[:, usual]
    gain = float(differences.mean())
    half = Z95 * float(differences.std(ddof=1)) / math.sqrt(count)
    by_leg = np.array(legs)
    alone = ((by_leg > 0) & (by_leg <= TOP)).mean(axis=0)
    best = _best(found, usual)
    return WeightCheckup(
        default=float(GRID[usual]),
        best=float(GRID[best]),
        curve={float(weight): float(share) for weight, share in zip(GRID, found.mean(axis=0), strict=True)},
        words=float(alone[0]),
        vectors=float(alone[1]),
        gain=gain,
        interval=(max(-1.0, gain - half), min(1.0, gain + half)),
        keep=best == usual or count < MIN_HEADINGS or gain - half <= 0,
    )


def _best(found: NDArray[np.float64], usual: int) -> int:
    """Column of the greatest mean; of equal ones the nearest to the usual weight."""
    means = found.mean(axis=0)
    equal = np.flatnonzero(means >= means.max() - 1e-12)
    return int(equal[np.abs(equal - usual).argmin()])


def notes_of(outcomes: Sequence[Outcome]) -> list[str]:
    """What a reader must know of the figures."""
    notes = []
    if outcomes and len(outcomes) < MIN_HEADINGS:
        notes.append(f"{len(outcomes)} headings are few: the interval says how little that is")
    lost = sum(one.standing.rank is None for one in outcomes)
    if lost:
        notes.append(f"{lost} sections are not among the {DEPTH} candidates of any leg")
    return notes
