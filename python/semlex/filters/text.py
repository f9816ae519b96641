"""Filters as texts: ``year >= 2020 and (lang == "de" or not exists draft) and @source_document like "handbook/%"``.

::

    filter     =  all { "or" all }
    all        =  one { "and" one }
    one        =  "not" one  |  "(" filter ")"  |  condition
    condition  =  ("exists" | "empty") name
               |  name ("==" | "=" | "!=" | "<" | "<=" | ">" | ">=") value
               |  name ["not"] "in" list
               |  name ["not"] "contains" value
               |  name ["not"] ("any" | "all") list
               |  name ["not"] "between" value "and" value
               |  name ["not"] ("startswith" | "like" | "ilike") text
    name       =  "@" word  |  ["@row."] (word | text) { "." (word | text | digits) }
    word       =  a letter or "_", then letters, digits, "_" and "-"
    value      =  text  |  number  |  "true"  |  "false"  |  "null"  |  list  |  object, as in JSON
    list       =  "[" [ value { "," value } ] "]"
    text       =  characters between double or single quotes, escaped as in JSON

Words of the language may be in upper case; a key of the metadata that equals such a word must be in quotes. ``=`` means
``==``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NoReturn

from semlex.filters.fields import (
    MAX_DIGITS,
    MAX_VALUE_DEPTH,
    RESERVED,
    ROW,
    WORD,
    WORDS,
    Field,
    checked_text,
    exact,
    metadata_field,
    nearest,
    own_field,
    refusal,
    row_field,
    unquoted,
)
from semlex.filters.tree import ALONE, MAX_BYTES, MAX_DEPTH, PLACE, FilterTree, between, condition, joined, negated

SYMBOLS = ("==", "!=", "<=", ">=", "<", ">")
LITERALS = {"true": True, "false": False, "null": None}
# Operators of other languages, and ours.
HINTS = {"<>": "!=", "===": "==", "=~": "like", "!": "!=", "=>": ">=", "=<": "<="}
_SPACE = re.compile(r"\s*")
_TEXT = re.compile(r""""[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*'""", re.DOTALL)
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?(?![\w.-])", re.ASCII)
_DIGITS = re.compile(r"\d+", re.ASCII)
_SYMBOL = re.compile(r"[=!<>~]+")
_IN_SINGLE_QUOTES = re.compile(r"\\.|\"", re.DOTALL)
_OPERATORS = f"an operator ({' '.join(SYMBOLS)}, {', '.join(WORDS)})"
_A_VALUE = 'a value: a number, a text in quotes ("de"), true, false, null, or a list of them in [ ]'


def tree_of_text(text: str, place: str = PLACE) -> FilterTree:
    """Return the tree of a text."""
    if len(text) > MAX_BYTES:
        raise refusal(place, "too_long", f"{MAX_BYTES} bytes", f"{len(text)} characters")
    checked_text(text, place)
    if not text.strip():
        raise refusal(place, "blank")
    parser = _Parser(text, place)
    tree = parser.filter(0)
    if parser.position < len(text):
        parser.fail("the end, 'and' or 'or'")
    return tree


class _Parser:
    """Parses a text from the left; `position` is where the next token begins."""

    def __init__(self, text: str, place: str) -> None:
        self._text, self._place = text, place
        self.position = 0
        self._skip()

    def fail(self, expected: str, hint: str = "") -> NoReturn:
        raise refusal(self._column(), "syntax", f"expected {expected}{hint}")

    def _column(self) -> str:
        return f"{self._place} at column {self.position + 1}"

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self.position)
        self.position = found.end() if found else self.position

    def _take(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Take the next token if it matches."""
        found = pattern.match(self._text, self.position)
        if found:
            self.position = found.end()
            self._skip()
        return found

    def _next(self) -> str:
        found = WORD.match(self._text, self.position)
        return found[0].lower() if found else self._text[self.position : self.position + 1]

    def _has(self, token: str) -> bool:
        """Take a word or a symbol if it comes next."""
        if self._next() != token:
            return False
        self.position += len(token)
        self._skip()
        return True

    def filter(self, depth: int) -> FilterTree:
        column = self._column()
        alternatives = [self._all(depth)]
        while self._has("or"):
            alternatives.append(self._all(depth))
        return joined("or", alternatives, column)

    def _all(self, depth: int) -> FilterTree:
        column = self._column()
        parts = [self._one(depth)]
        while self._has("and"):
            parts.append(self._one(depth))
        return joined("and", parts, column)

    def _one(self, depth: int) -> FilterTree:
        column = self._column()
        if depth > MAX_DEPTH:
            raise refusal(column, "too_deep", str(MAX_DEPTH))
        if self._has("not"):
            return negated(self._one(depth + 1), column)
        if self._has("("):
            inner = self.filter(depth + 1)
            if not self._has(")"):
                self.fail("')', 'and' or 'or'")
            return inner
        for word in ALONE:
            if self._has(word):
                return condition(self._name(), word, None, column)
        return self._condition()

    def _condition(self) -> FilterTree:
        field = self._name()
        start = self.position
        if symbol := self._take(_SYMBOL):
            operator: Any = "==" if symbol[0] == "=" else symbol[0]
            if operator not in SYMBOLS:
                self.position = start
                self.fail(_OPERATORS, f"; did you mean {HINTS[operator]}?" if operator in HINTS else "")
            column = self._column()
            value = self._value(0)
            if operator == "!=":
                return negated(condition(field, "==", value, column), column)
            return condition(field, operator, value, column)
        is_not = self._has("not")
        word = self._next()
        if word not in WORDS:
            self.fail(_OPERATORS, nearest(word, WORDS) if word.isidentifier() else "")
        self._has(word)
        column = self._column()
        made = self._worded(field, word, column)
        return negated(made, column) if is_not else made

    def _worded(self, field: Field, word: Any, column: str) -> FilterTree:
        if word != "between":
            return condition(field, word, self._value(0), column)
        low = self._value(0)
        if not self._has("and"):
            self.fail("'and' with the upper bound")
        return between(field, low, self._value(0), column)

    def _name(self) -> Field:
        column = self._column()
        if self._text.startswith("@", self.position):
            self.position += 1
            found = self._take(WORD)
            if found and found[0] == ROW and self._has("."):
                return row_field(self._parts(), column)
            return own_field(found[0] if found else "", column)
        return metadata_field(self._parts(), column)

    def _parts(self) -> tuple[str, ...]:
        parts = [self._part(first=True)]
        while self._has("."):
            parts.append(self._part(first=False))
        return tuple(parts)

    def _part(self, *, first: bool) -> str:
        if (quoted := self._quoted()) is not None:
            return quoted
        start = self.position
        found = self._take(WORD) or (None if first else self._take(_DIGITS))
        if found is None:
            self.fail("the name of a field")
        if found[0].lower() in RESERVED:
            self.position = start
            self.fail("the name of a field; a key that is also a word of the filter language must be in quotes")
        return found[0]

    def _quoted(self) -> str | None:
        column = self._column()
        if self._text[self.position : self.position + 1] not in ('"', "'"):
            return None
        found = self._take(_TEXT)
        if found is None:
            self.fail("a text with the same quotation mark at its beginning and end")
        token = found[0]
        if token[0] == "'":
            token = f'"{_IN_SINGLE_QUOTES.sub(_to_double_quotes, token[1:-1])}"'
        return checked_text(unquoted(token, column), column)

    def _value(self, depth: int) -> Any:
        if (quoted := self._quoted()) is not None:
            return quoted
        if depth == MAX_VALUE_DEPTH and self._next() in {"[", "{"}:
            raise refusal(self._column(), "too_deep", str(MAX_VALUE_DEPTH))
        if self._has("["):
            return self._items("]", lambda: self._value(depth + 1))
        if self._has("{"):
            return dict(self._items("}", lambda: self._entry(depth + 1)))
        column = self._column()
        if number := self._take(_NUMBER):
            return _number(number, column)
        word = self._next()
        if word not in LITERALS:
            self.fail(_A_VALUE, "; a text, and a date, must be in quotes" if word.isalnum() else "")
        self._has(word)
        return LITERALS[word]

    def _entry(self, depth: int) -> tuple[str, Any]:
        key = self._quoted()
        if key is None:
            self.fail("a key in quotes")
        if not self._has(":"):
            self.fail("':' and a value after the key")
        return key, self._value(depth)

    def _items(self, end: str, item: Callable[[], Any]) -> list[Any]:
        items: list[Any] = []
        if self._has(end):
            return items
        while True:
            items.append(item())
            if self._has(end):
                return items
            if not self._has(","):
                self.fail(f"',' or '{end}'")


def _to_double_quotes(found: re.Match[str]) -> str:
    return {'"': '\\"', "\\'": "'"}.get(found[0], found[0])


def _number(found: re.Match[str], column: str) -> int | float | Decimal:
    if len(found[0]) > MAX_DIGITS + 1:
        raise refusal(column, "out_of_range", f"{MAX_DIGITS} digits")
    if found[1] is None and found[2] is None:
        return int(found[0])
    if found[2] is not None and abs(int(found[2][1:])) > MAX_DIGITS:
        raise refusal(column, "out_of_range", f"{MAX_DIGITS} digits")
    # As the float that Python reads and metadata holds, unless it has more digits than that.
    number, written = float(found[0]), Decimal(found[0])
    return number if math.isfinite(number) and written in {Decimal(repr(number)), exact(number)} else written
