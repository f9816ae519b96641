"""Excerpts in plain Python: what `_core.excerpts` makes, by patterns and characters."""

import re
from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple

from semlex import _core

# Characters of the text in an excerpt. A single sentence may be longer, up to the second number.
EXCERPT_CHARACTERS, LONGEST_SENTENCE = 300, 400
# An excerpt that is shorter than this goes on with the next sentences.
WANTED_CHARACTERS = 180
MAX_CODE_LINES = 8
# Sentences that are farther than this from the beginning of their line are prose.
MAX_LINE = 10_000
MARK = "**"
# Words with the same first letters count as one word.
STEM_LETTERS = 5
# Directives of reStructuredText whose argument only steers a renderer; the arguments of others are text.
_STEERING = (
    "code|code-block|sourcecode|highlight|parsed-literal|literalinclude|include|image|figure|toctree|contents|index|"
    "module|currentmodule|automodule|only|table|csv-table|list-table|raw|container|class|rst-class|cssclass|role|"
    "default-role|default-domain|productionlist|math|tabularcolumns|sectionauthor|codeauthor|meta|doctest|testsetup|"
    "testcode|testoutput|console|highlightlang|tabs|tab|code-tab|grid|dropdown|sidebar|topic|epigraph|plot|graphviz"
)
_DIRECTIVE = re.compile(rf"\.\.[ \t]+(?:\[[^\]\n]+\]|(?!(?:{_STEERING})::)[\w:+-]*\w::)[ \t]*")
# Lines that only steer a renderer: directives and labels of reStructuredText and MyST, fences, comments, templates.
_RAW = re.compile(
    r"(?:\.\.(?:[ \t].*)?|__[ \t].*|:{3,}.*|`{3,}.*|~{3,}.*|\([\w.:-]+\)=|\[[^\]]+\]:[ \t]+\S.*|<!--.*|.*-->|"
    r"\{%.*%\}|\{\{[<%].*[>%]\}\}|\+\+\+|---)"
)
# What has none of these at the beginning of a line is not looked at for such lines.
_SIGNS = re.compile(r"^[ \t]*(?:\.\.|__|:::|```|~~~|\(|\[|<!--|\{[%{]|\+\+\+|---)|-->", re.MULTILINE)
_OPTION = re.compile(r":[\w-]+:(?:[ \t].*)?")
_OPTIONS = re.compile(r"(?:[ \t]*:[\w-]+:[^\n]*(?:\n|\Z))*")


class Shown(NamedTuple):
    """The excerpt of a text, and the character of the text with its first matched word, or None."""

    excerpt: str
    match: int | None


class _Piece(NamedTuple):
    start: int
    end: int
    is_code: bool


def places(text, words):
    return [found.span() for found in re.finditer(r"[^\W_]+", text) if found.group().lower() in words]


def excerpt(text, matches):
    """Return the sentences that hold most of the matched words, marked; ``…`` stands where text was left out."""
    first = matches[0][0] if matches else None
    pieces = _pieces(text)
    if not pieces:
        return Shown(_marked(text, 0, len(text), matches).strip()[: 2 * EXCERPT_CHARACTERS], first)
    chosen = sorted(_chosen(text, pieces, matches))
    parts, last = [], -1
    for number in chosen:
        piece = pieces[number]
        start, end = _cut(text, piece, matches)
        before = pieces[last] if parts else None
        is_cut = number > last + 1 or start > piece.start
        if before is None:
            parts += [_ellipsis(piece.is_code, behind=True)] if is_cut else []
        elif is_cut or parts[-1].endswith("…"):
            apart = "\n" if piece.is_code or before.is_code else " "
            parts += [apart if parts[-1].endswith("…") else f"{apart}…{apart}"]
        else:
            between = text[before.end : piece.start]
            parts += ["\n" if between.strip() or "\n" in between else between]
        parts += [_marked(text, start, end, matches)]
        parts += [_ellipsis(piece.is_code, behind=False)] if end < piece.end else []
        last = number
    if last < len(pieces) - 1 and not parts[-1].endswith("…"):
        parts += [_ellipsis(pieces[last].is_code, behind=False)]
    places = [(pieces[number].start, pieces[number].end) for number in chosen]
    inside = (at for at, _ in matches if any(start <= at < end for start, end in places))
    return Shown("".join(parts), next(inside, first))


def _ellipsis(is_code, *, behind):
    apart = "\n" if is_code else " "
    return f"…{apart}" if behind else f"{apart}…"


def _pieces(text):
    """Return the sentences and the parts of code of a text, without headings and lines that only steer a renderer."""
    found, headings, is_directive = [], [], False
    for start, end, kind in _core.split_sentences(text):
        if kind == "code":
            begin = text.rfind("\n", 0, start) + 1
            if is_directive:  # its options are indented, as its content is
                begin = _OPTIONS.match(text, begin, end).end()  # it matches nothing, too
            is_directive = False
            if found and found[-1].is_code and not text[found[-1].end : begin].strip():
                found[-1] = found[-1]._replace(end=end)
            elif begin < end:
                found.append(_Piece(begin, end, is_code=True))
        elif kind == "heading":
            headings.append(_Piece(start, end, is_code=False))
        elif not _may_steer(text, start, end, is_directive=is_directive):
            is_directive = False
            found.append(_Piece(start, end, is_code=False))
        else:
            is_directive = is_directive and "\n\n" not in text[max(0, start - 2) : start]
            kept, is_directive = _without_marks(text, start, end, is_directive=is_directive)
            found += kept
    return found or headings


def _may_steer(text, start, end, *, is_directive):
    """Return whether lines of a sentence may only steer a renderer."""
    begin = text.rfind("\n", max(0, start - MAX_LINE), start) + 1
    return (begin > 0 or start <= MAX_LINE) and (is_directive or _SIGNS.search(text, begin, end) is not None)


def _without_marks(text, start, end, *, is_directive):
    """Return the lines of a sentence that are for readers, and whether the last line belongs to a directive."""
    kept = []
    for part in re.finditer(r"[^\n]+", text[start:end]):
        first, last = start + part.start(), start + part.end()
        # A sentence may begin in the middle of its line.
        begin = text.rfind("\n", 0, first) + 1
        stop = text.find("\n", last, last + MAX_LINE)
        line = text[begin : last + MAX_LINE if stop < 0 else stop].rstrip("\r")
        # Without its indentation, before which a pattern would go back for every blank.
        bare = line.lstrip(" \t")
        if directive := _DIRECTIVE.match(bare):
            is_directive, first = True, max(first, begin + len(line) - len(bare) + directive.end())
        elif _RAW.fullmatch(bare.rstrip(" \t")) or (is_directive and _OPTION.fullmatch(bare)):
            is_directive = True
            continue
        else:
            is_directive = False
        if first >= last:
            continue
        if kept and text[kept[-1].end : first].strip(" \t") in ("\n", "\r\n"):
            kept[-1] = kept[-1]._replace(end=last)
        else:
            kept.append(_Piece(first, last, is_code=False))
    return kept, is_directive


def _chosen(text, pieces, matches):
    """Yield the numbers of the pieces that are shown."""
    if sum(one.end - one.start for one in pieces) <= EXCERPT_CHARACTERS:
        yield from range(len(pieces))
        return
    sizes = [min(one.end - one.start, EXCERPT_CHARACTERS) for one in pieces]
    words, starts = {}, [one.start for one in pieces]
    for at, behind in matches:
        number = bisect_right(starts, at) - 1
        if number >= 0 and behind <= pieces[number].end:
            words.setdefault(number, set()).add(text[at:behind].lower()[:STEM_LETTERS])
    room, shown_words, taken = EXCERPT_CHARACTERS, set(), set()
    best = first = max(words, key=lambda number: (len(words[number]), -number), default=0)
    while best is not None:
        taken.add(best)
        room -= sizes[best]
        shown_words |= words.pop(best, set())
        news = {number: len(own - shown_words) for number, own in words.items() if sizes[number] <= room}
        best = max(news, key=lambda number: (news[number], -number), default=None)
        best = best if best is not None and news[best] else None
    # The first piece goes on, so that an excerpt is more than a few words.
    behind = first + 1
    while behind < len(pieces) and EXCERPT_CHARACTERS - room < WANTED_CHARACTERS:
        if behind not in taken:
            if sizes[behind] > room:
                break
            taken.add(behind)
            room -= sizes[behind]
        behind += 1
    yield from taken


def _cut(text, piece, matches):
    """Return which part of a piece is shown: all of it, or that around its first match if it is very long."""
    start, end, is_code = piece
    first = next((at for at, behind in matches if at >= start and behind <= end), start)
    if is_code:
        lines = [start, *(start + found.end() for found in re.finditer("\n", text[start:end])), end + 1]
        if len(lines) - 1 > MAX_CODE_LINES:
            own = next(number for number, (a, b) in enumerate(pairwise(lines)) if a <= first < b)
            begin = max(0, min(own - 1, len(lines) - 1 - MAX_CODE_LINES))
            start, end = lines[begin], lines[begin + MAX_CODE_LINES] - 1
    if end - start <= LONGEST_SENTENCE:
        return start, end
    begin = max(start, min(first - EXCERPT_CHARACTERS // 3, end - EXCERPT_CHARACTERS))
    stop = min(end, begin + EXCERPT_CHARACTERS)
    blank = re.search(r"\s+", text[begin:first]) if begin > start else None
    begin += blank.end() if blank else 0
    last = max((found.start() for found in re.finditer(r"\s+", text[begin:stop])), default=0) if stop < end else 0
    return begin, begin + last if last and begin + last > first else stop


def _marked(text, start, end, matches):
    """Return a part of a text with its matches marked, unless the text marks them already."""
    parts, done = [], start
    for first, last in matches:
        if first < start or last > end or first < done:
            continue
        own = text.endswith(MARK, start, first) and text.startswith(MARK, last, end)
        mark = "" if own else MARK
        parts += [text[done:first], mark, text[first:last], mark]
        done = last
    return "".join([*parts, text[done:end]])
