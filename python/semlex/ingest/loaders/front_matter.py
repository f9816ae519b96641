"""The front matter of Markdown: the simple part of YAML, read without a library."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

MAX_KEYS = 100
MAX_VALUE_CHARACTERS = 10_000

# A blank second line makes the first one a rule.
_FENCED = re.compile(r"\A---[ \t]*\r?\n(?![ \t]*\r?\n)(.*?\n)(?:---|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL)
_KEY = re.compile(r"(?P<key>[^\W\d][\w.-]{0,99})[ \t]*:(?:[ \t]+(?P<value>.*))?")
_ITEM = re.compile(r"[ \t]*-[ \t]+(.*)")
# Up to 15 digits are the same number everywhere; a number that begins with 0 is a code, and stays a text.
_INTEGER = re.compile(r"[-+]?(?:0|[1-9]\d{0,14})", re.ASCII)
_DECIMAL = re.compile(r"[-+]?(?:0|[1-9]\d{0,14})\.\d{1,15}", re.ASCII)
# Quoted texts, each with a comment behind it.
_QUOTED = re.compile(r"""(?:"((?:[^"\\]|\\["\\/])*+)"|'((?:[^']|'')*+)')(?:[ \t]+\#.*)?""")
_ESCAPE = re.compile(r'\\(["\\/])')
_COMMENT = re.compile(r"(?:\A|[ \t])#.*")
_PART = re.compile(r"""[ \t]*("(?:[^"\\]|\\.)*+"|'(?:[^']|'')*+'|[^,"'\[\]{}][^,\[\]{}]*+)[ \t]*(?:,|\Z)""")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None, "~": None, "": None}
# What begins with these is YAML that is not simple: blocks, references, tags.
_NOT_SIMPLE = tuple("|>&*!{}[]%@`\"'")
_NOTHING = object()


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """What a text says of itself before it begins.

    Attributes:
        end: Where the text begins, in characters; 0 where there is no front matter.
        title: The value of ``title``, or None.
        metadata: The other values that are simple.
    """

    end: int = 0
    title: str | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def read_front_matter(text: str) -> FrontMatter:
    """Reads the front matter of a text.

    Read are lines ``key: value`` that begin at the margin, with texts (quoted or not), numbers, ``true``, ``false`` and
    ``null``, and flat lists: ``[a, b]``, or lines ``- a`` below the key. Dates stay texts. Of a key that comes
    twice the first one counts. Left out, without failing, are keys with a nested block, a text of several lines, an
    anchor or a tag; values above 10,000 characters, and what follows the hundredth key.
    """
    fenced = _FENCED.match(text)
    if fenced is None:
        return FrontMatter()
    title = None
    metadata: dict[str, Any] = {}
    for key, lines in _entries(fenced[1]):
        if key == "title" and title is None and len(lines) == 1:
            title = _title(lines[0])
        elif key != "title" and key not in metadata and (value := _value(lines)) is not _NOTHING:
            metadata[key] = value
    return FrontMatter(fenced.end(), title, metadata)


def _entries(block: str) -> list[tuple[str, list[str]]]:
    """The keys at the margin, each with its value and the lines below it."""
    entries: list[tuple[str, list[str]]] = []
    for line in block.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if found := _KEY.fullmatch(line):
            if len(entries) == MAX_KEYS:
                break
            entries.append((found["key"], [(found["value"] or "").strip()]))
        elif entries:
            entries[-1][1].append(line)
    return entries


def _value(lines: list[str]) -> Any:
    """The value of a key, or `_NOTHING` where it is not simple."""
    first, below = lines[0], lines[1:]
    if sum(map(len, lines)) > MAX_VALUE_CHARACTERS:
        return _NOTHING
    if not below:
        return _flat_list(first) if first.startswith("[") else _scalar(first)
    items = [_ITEM.fullmatch(line) for line in below]
    if _COMMENT.sub("", first).strip() or None in items:
        return _NOTHING
    # An item that is itself `key: value` is the beginning of a nested block.
    values = [_NOTHING if _KEY.fullmatch(item[1]) else _scalar(item[1].strip()) for item in items if item]
    return _NOTHING if _NOTHING in values else values


def _scalar(text: str) -> Any:
    if found := _QUOTED.fullmatch(text):
        double, single = found.groups()
        return _ESCAPE.sub(r"\1", double) if double is not None else single.replace("''", "'")
    text = _COMMENT.sub("", text).strip()
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    return _NOTHING if text.startswith(_NOT_SIMPLE) else text


def _flat_list(text: str) -> Any:
    text = _COMMENT.sub("", text).strip() if "]" not in text else text[: text.rindex("]") + 1]
    inner = text[1:-1].strip()
    if not text.endswith("]"):
        return _NOTHING
    values: list[Any] = []
    at = 0
    while at < len(inner):
        part = _PART.match(inner, at)
        value = _NOTHING if part is None else _scalar(part[1].strip())
        if part is None or value is _NOTHING:
            return _NOTHING
        values.append(value)
        at = part.end()
    return values


def _title(text: str) -> str | None:
    """The title, whatever its kind: a year is one."""
    value = _scalar(text) if len(text) <= MAX_VALUE_CHARACTERS else ""
    shown = value if isinstance(value, str) else text.strip("\"'")
    return shown.strip() or None
