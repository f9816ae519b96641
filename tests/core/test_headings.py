"""The headings above every chunk are those of a slow twin, which hides code and comments first and then looks for
headings with regular expressions.
"""

import re

from hypothesis import given

from semlex import _core
from tests.support.markdown_texts import MARKDOWN, bounds

RULE = re.compile(r"([-*_])\s*(\1\s*){2,}$")
NESTED = re.compile(r">|[-*+](?:[ \t]|$)|\d{1,9}[.)](?:[ \t]|$)", re.ASCII)


def lines_of(text):
    """(start, end, line without its break) of every line."""
    return [(found.start(), found.end(), found[1]) for found in re.finditer(r"([^\r\n]*)(?:\r\n|\r|\n|\Z)", text)]


def unindented(line):
    """The line without its indentation, or None when that is four columns or more."""
    return None if re.match(r" {4}| {0,3}\t", line) else line.lstrip(" ")


def front_matter_lines(lines):
    if len(lines) < 2 or lines[0][2].removeprefix("\ufeff").rstrip() != "---" or not lines[1][2].strip():
        return 0
    closing = (number for number in range(1, len(lines)) if lines[number][2].rstrip() in ("---", "..."))
    return next(closing, -1) + 1


def visible_lines(text):
    """What is neither front matter nor fenced code nor a comment; a hidden line is None."""
    lines = lines_of(text)
    hidden = front_matter_lines(lines)
    fence, indented, comment = "", 0, False
    for number, (start, end, line) in enumerate(lines):
        body = unindented(line)
        opened = re.match(r"[ \t]*(`{3,}(?=[^`]*$)|~{3,})", line)
        indent = len(line) - len(line.lstrip(" \t"))
        if fence and indented >= 4 and line.strip() and indent < indented:
            fence = ""  # code in a list ends with its item
        if number < hidden:
            yield start, end, None
        elif fence:
            marks = line.strip()
            if indent < indented + 4 and set(marks) == {fence[0]} and len(marks) >= len(fence):
                fence = ""
            yield start, end, None
        elif comment or (body or "").startswith("<!--"):
            comment = "-->" not in line
            yield start, end, None
        else:
            fence, indented = (opened[1], indent) if opened else ("", 0)
            yield start, end, None if opened else line


def slow_headings(text):
    """(start, end, level, title) of every heading."""
    paragraph, nested = None, False
    for start, end, line in visible_lines(text):
        body = unindented(line) if line and line.strip() else ""
        if body is None:
            continue
        atx = re.match(r"(#{1,6})(?:[ \t](.*))?$", body, re.DOTALL)
        underline = re.match(r"(=+|-+)\s*$", body)
        if atx:
            title = (atx[2] or "").strip()
            yield start, end, len(atx[1]), re.sub(r"(^|(?<=[ \t]))#+$", "", title)
        elif underline and paragraph is not None:
            yield paragraph, end, 1 if body[0] == "=" else 2, text[paragraph:start]
        elif body and not RULE.match(body):
            nested = nested or bool(NESTED.match(body))
            paragraph = None if nested else start if paragraph is None else paragraph
            continue
        paragraph, nested = None, False


def slow_sections(text):
    """(start, start of the text below the heading, end, {level: (number, title)}) of every section."""
    path, parts = {}, [(0, 0, {})]
    for number, (start, end, level, title) in enumerate(slow_headings(text)):
        path = {above: name for above, name in path.items() if above < level}
        path[level] = (number, " ".join(title.split())[:256].strip())
        parts.append((start, end, path))
    ends = [start for start, _, _ in parts[1:]] + [len(text)]
    return [(start, below, end, titles) for (start, below, titles), end in zip(parts, ends, strict=True)]


def slow_path(sections, text, start, end):
    """What the paths of the sections in a chunk have in common; sections whose body it holds come first."""
    touched = [part for part in sections if part[0] < end and start < part[2] and text[part[0] : part[2]].strip()]
    touched = [part for part in touched if text[max(start, part[0]) : min(end, part[2])].strip()]
    with_body = [part for part in touched if text[max(start, part[1]) : min(end, part[2])].strip()]
    titles = [part[3] for part in with_body or touched]
    common = []
    for level in range(1, 7):
        found = {path.get(level) for path in titles}
        found = {None if entry is None or not entry[1] else entry for entry in found}
        if len(found) > 1:
            break
        common += [entry[1] for entry in found if entry]
    return tuple(common)


@given(MARKDOWN, bounds())
def test_headings_are_those_of_the_twin(text, limits):
    found = _core.split_text(text, _core.word_offsets(text), structure="markdown", **limits)
    sections = slow_sections(text)
    for start, end, path in zip(found.starts.tolist(), found.ends.tolist(), found.headings, strict=True):
        assert path == slow_path(sections, text, start, end)
    firsts = [path[1][1] for _, _, _, path in sections if max(path, default=0) == 1 and path[1][1]]
    assert found.title == (firsts[0] if firsts else None)
