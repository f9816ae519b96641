from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import NDArray

DEBUG_BUILD: bool
__version__: str
__all__: list[str]

# --- chunking, batching, fusion ---------------------------------------------------------------------------------------

@final
class Chunks:
    """The chunks of a text in its order; row i of every array is chunk i.

    Attributes:
        starts: (c,) where each begins, in characters; strictly ascending.
        ends: (c,) where each ends, in characters (exclusive); strictly ascending.
        token_counts: (c,) tokens that touch each.
        lines: (c,) line on which each begins, from 1; a line ends with ``\\n``, ``\\r`` or both.
        code: (c,) whether each lies inside one fenced code block.
        headings: c paths of titles, outermost first; levels without a title are left out. A chunk that holds text of
            several sections has what their paths share. Titles are cut at 256 characters.
        title: The first title of level 1, or None.
    """

    @property
    def starts(self) -> NDArray[np.int64]: ...
    @property
    def ends(self) -> NDArray[np.int64]: ...
    @property
    def token_counts(self) -> NDArray[np.int64]: ...
    @property
    def lines(self) -> NDArray[np.int64]: ...
    @property
    def code(self) -> NDArray[np.bool_]: ...
    @property
    def headings(self) -> list[tuple[str, ...]]: ...
    @property
    def title(self) -> str | None: ...
    def __len__(self) -> int: ...

def split_text(
    text: str,
    token_offsets: NDArray[np.int64],
    *,
    max_tokens: int,
    overlap_tokens: int,
    min_tokens: int,
    markdown: bool,
    max_bytes: int,
) -> Chunks:
    """Cuts a text into slices of at most `max_tokens` tokens; linear in the length of the text.

    Sections end at headings (CommonMark 0.31: ATX and setext, not in fenced code, comments or front matter). A section
    below `min_tokens` is joined with the following sibling or child where both fit; headings without text are joined
    with what follows. Inside a section the text is packed greedily: paragraphs (fenced code stays whole where it
    fits), then lines, sentences, words, parts of words, graphemes, characters.

    Together the chunks hold every character that is not blank (``str.isspace``); none is blank. A token that is cut in
    two counts on both sides. One character that has more tokens than `max_tokens` is a chunk all the same.

    Args:
        text: The text.
        token_offsets: (t, 2) start and end of every token in characters, both columns ascending.
        max_tokens: Most tokens of a chunk, from 1.
        overlap_tokens: Most tokens that neighbours of one section share, below `max_tokens`; 0 for none. A neighbour
            repeats at most half of the chunk before it.
        min_tokens: Smaller sections are joined, from 0.
        markdown: Whether headings, fences and comments are recognised; without, the text is one section.
        max_bytes: Most bytes of a chunk in UTF-8, from 4.

    Raises:
        ValueError: A number is out of its range, the offsets have another dtype or shape, a row of them lies outside
            the text or out of order, or the text holds a lone surrogate; the message names it.
        TypeError: An argument has another type.
    """

def word_offsets(text: str) -> NDArray[np.int64]:
    """Finds the words that hold a letter or a digit (Unicode Standard Annex 29, section 4).

    Args:
        text: The text.

    Returns:
        (w, 2) start and end in characters, in ascending order, without overlap.

    Raises:
        ValueError: The text holds a lone surrogate; the message names the character.
    """

@final
class BatchPlan:
    """Rows in batches.

    Attributes:
        order: (n,) row numbers, longest row first; rows of equal length in their own order.
        boundaries: (b + 1,) batch i is ``order[boundaries[i] : boundaries[i + 1]]``; begins with 0 and ends with n.
        inverse: (n,) place of every row in `order`: ``np.concatenate(results)[plan.inverse]`` is in the rows' order.
        real_tokens: Tokens of all rows.
        computed_tokens: Tokens that a model computes; ``1 - real_tokens / computed_tokens`` is what padding wastes.
    """

    @property
    def order(self) -> NDArray[np.int64]: ...
    @property
    def boundaries(self) -> NDArray[np.int64]: ...
    @property
    def inverse(self) -> NDArray[np.int64]: ...
    @property
    def real_tokens(self) -> int: ...
    @property
    def computed_tokens(self) -> int: ...

def plan_batches(lengths: NDArray[np.int64], *, token_budget: int, max_rows: int, padded: bool) -> BatchPlan:
    """Plans batches of rows of like length.

    A batch is cut before it costs more than `token_budget` or has more than `max_rows` rows; a row above the budget is
    a batch of its own.

    Args:
        lengths: (n,) tokens per row, from 0.
        token_budget: Most tokens of a batch, from 1.
        max_rows: Most rows of a batch, from 1.
        padded: Whether a batch costs its longest row times its rows; else it costs the sum of its rows.

    Raises:
        ValueError: A number is out of its range, a length is negative, their sum passes 64 bits, or the array has
            another dtype or shape; the message names it.
        TypeError: An argument has another type.
    """

def reciprocal_rank_fusion(
    rankings: Sequence[NDArray[np.int64]],
    *,
    weights: Sequence[float] | None = None,
    k: float = 60.0,
    limit: int | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Fuses rankings by rank: ``score(d) = sum of weight / (k + rank of d)``, ranks from 1.

    G. V. Cormack, C. L. A. Clarke and S. Buettcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
    Learning Methods", SIGIR 2009. An id that a ranking names twice counts there once, at its best rank.

    Args:
        rankings: Ids of each ranking, best first, each (n,); ties are broken by the smaller id.
        weights: One per ranking, finite and not negative; 1 each when left out.
        k: Constant, finite and not negative: the larger, the less the first ranks stand out.
        limit: Most ids of the answer, from 0; all when left out.

    Returns:
        ids: (m,) every id once, best first.
        scores: (m,) their scores.

    Raises:
        ValueError: A weight, the constant or the limit is out of its range, there are more or fewer weights than
            rankings, or an array has another dtype or shape; the message names it.
        TypeError: An argument has another type.
    """

def linear_fusion(
    rankings: Sequence[NDArray[np.int64]],
    scores: Sequence[NDArray[np.float64]],
    *,
    weights: Sequence[float] | None = None,
    limit: int | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Fuses rankings by score: ``sum of weight * (s - least) / (greatest - least)`` over the rankings that hold an id.

    Where all scores of a ranking are equal, each counts as 1. An id that a ranking names twice counts there once, with
    its first score.

    Args:
        rankings: Ids of each ranking, each (n,); ties are broken by the smaller id.
        scores: ``scores[i][j]`` belongs to ``rankings[i][j]``; finite, may be negative.
        weights: One per ranking, finite and not negative; 1 each when left out.
        limit: Most ids of the answer, from 0; all when left out.

    Returns:
        ids: (m,) every id once, best first.
        scores: (m,) their scores.

    Raises:
        ValueError: A weight, a score or the limit is out of its range, lists differ in number or length, or an array
            has another dtype or shape; the message names it.
        TypeError: An argument has another type.
    """
