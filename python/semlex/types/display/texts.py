"""Texts of documents for people: printable, bounded, with the matched words of an excerpt told apart."""

from __future__ import annotations

import re
from itertools import pairwise

# Control characters of both sets but tab and newline, line and paragraph separators, marks that turn the direction of
# writing, and halves of surrogate pairs: documents and file names must not steer a terminal.
UNSAFE = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
BETWEEN_PARTS = " … "
SHOWN_LINES, SHOWN_WIDTH = 10, 118


def printable(text: str) -> str:
    r"""Text with its control characters escaped, for example ``\x1b``."""
    return UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text)


def one_line(text: str) -> str:
    """A name or a title: as `printable`, and on one line."""
    return printable(re.sub(r"[\n\t]", lambda found: ascii(found[0])[1:-1], text))


def shortened(text: str, most: int) -> str:
    """A text on one line of at most so many characters, its blanks folded."""
    begin = " ".join(text[: 4 * most].split())
    line = one_line(begin)
    return line if len(line) <= most and len(text) <= 4 * most else f"{line[: most - 1]}…"


def first_lines(text: str) -> str:
    """A text of several lines as a prompt shows it: the first lines, each shortened, and how many there are more."""
    lines = text.split("\n")
    shown = [shortened(line, SHOWN_WIDTH) for line in lines[:SHOWN_LINES]]
    more = len(lines) - len(shown)
    return "\n".join(shown + ([f"... and {more:,} more lines: print() shows all"] if more else []))


def marked_parts(excerpt: str, content: str) -> list[tuple[str, bool]]:
    """An excerpt without its marks, in pieces: each a text and whether it is a matched word.

    The marks are ``**``, which a text may hold itself. What the excerpt holds beyond its text is a mark.

    Args:
        excerpt: Parts of the content, joined by `` … ``, matched words between ``**``.
        content: The whole text.
    """
    pieces: list[tuple[str, bool]] = []
    for number, part in enumerate(excerpt.split(BETWEEN_PARTS)):
        pieces += [(BETWEEN_PARTS, False)] if number else []
        pieces += _pieces_of(part, content)
    return [piece for piece in pieces if piece[0]]


def _pieces_of(part: str, content: str) -> list[tuple[str, bool]]:
    start = content.replace("*", "").find(part.replace("*", ""))
    if start < 0:
        return [(part, False)]
    # Runs of stars have even indexes, the characters between them odd ones; those are equal in part and content.
    own = re.split(r"([^*])", part)
    there = re.split(r"([^*])", content)[2 * start : 2 * start + len(own)]
    plain = ""
    toggles: list[int] = []
    for stars, letter, others in zip(own[::2], [*own[1::2], ""], there[::2], strict=True):
        marks = max(0, len(stars) - len(others)) // 2
        closes = len(toggles) % 2 == 1
        if marks % 2:
            toggles.append(len(plain) + (0 if closes else len(stars) - 2 * marks))
        plain += stars[2 * marks :] + letter
    # A mark that is never closed marks nothing.
    edges = [0, *toggles[: len(toggles) // 2 * 2], len(plain)]
    return [(plain[begin:end], number % 2 == 1) for number, (begin, end) in enumerate(pairwise(edges))]
