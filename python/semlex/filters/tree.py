"""The tree of a filter: conditions on fields, joined by *and*, *or* and *not*; and `F`, which makes one in Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as attribute
from datetime import datetime
from typing import Any, Literal, get_args

from semlex.errors import ConfigurationError
from semlex.filters.fields import (
    Field,
    OwnKind,
    checked_instant,
    checked_pattern,
    checked_text,
    checked_value,
    exact,
    field_named,
    is_number,
    json_text,
    refusal,
)
from semlex.json_values import id_text, json_scalar

Operator = Literal[
    "==", "<", "<=", ">", ">=", "in", "contains", "any", "all", "exists", "empty", "startswith", "like", "ilike"
]
ORDER = ("<", "<=", ">", ">=")
PATTERNS = ("startswith", "like", "ilike")
LISTS = ("in", "any", "all")
ALONE: tuple[Operator, ...] = ("exists", "empty")
# Operators of semlex's own fields, by the kind of their values; a metadata field takes all operators.
OPERATORS: dict[OwnKind, tuple[str, ...]] = {
    "text": ("==", *ORDER, "in", *ALONE, *PATTERNS),
    "texts": ("==", "contains", "any", "all", *ALONE),
    "instant": ("==", *ORDER, "in"),
    "key": ("==", "in"),
    "number": ("==", *ORDER, "in", *ALONE),
}
MAX_CONDITIONS = 1_000
MAX_DEPTH = 64
MAX_BYTES = 1024 * 1024
PLACE = "filters"
_KEY_DIGITS = 32


# A tree is immutable; nested groups of one kind are merged, and a double *not* is dropped. Limits are checked whenever
# one is made.
class FilterTree:
    """A filter: ``&`` is *and*, ``|`` is *or*, ``~`` is *not*; ``str()`` gives the text form of the command line."""

    __slots__ = ()

    depth: int
    conditions: int
    size: int

    def __and__(self, other: FilterTree) -> FilterTree:
        return joined("and", (self, other)) if isinstance(other, FilterTree) else NotImplemented

    def __or__(self, other: FilterTree) -> FilterTree:
        return joined("or", (self, other)) if isinstance(other, FilterTree) else NotImplemented

    def __invert__(self) -> FilterTree:
        return negated(self)

    def __bool__(self) -> bool:
        """Raise an error: Python's ``and``, ``or``, ``not`` and ``a < b < c`` would lose a part of the filter."""
        raise ConfigurationError(
            "a filter has no truth value: write & for and, | for or, ~ for not (with brackets around each condition), "
            "and between(low, high) for low <= F(name) <= high"
        )


@dataclass(frozen=True, slots=True)
class Condition(FilterTree):
    """A test of one field; the value is JSON, a list, a text, an instant, or None."""

    field: Field
    operator: Operator
    value: Any = None
    depth: int = attribute(default=0, init=False, compare=False, repr=False)
    conditions: int = attribute(default=1, init=False, compare=False, repr=False)
    size: int = attribute(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", len(str(self.field).encode()) + len(json_text(self.value).encode()))

    def __str__(self) -> str:
        if self.operator in ALONE:
            return f"{self.operator} {self.field}"
        return f"{self.field} {self.operator} {json_text(self.value)}"


@dataclass(frozen=True, slots=True)
class Group(FilterTree):
    """Two or more filters, all (*and*) or at least one (*or*) of which must hold."""

    word: Literal["and", "or"]
    parts: tuple[FilterTree, ...]
    depth: int = attribute(compare=False, repr=False)
    conditions: int = attribute(compare=False, repr=False)
    size: int = attribute(compare=False, repr=False)

    def __str__(self) -> str:
        return f" {self.word} ".join(f"({part})" if isinstance(part, Group) else str(part) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Not(FilterTree):
    """A filter that must not hold; so `Not` also holds if the field is missing."""

    part: Condition | Group
    depth: int = attribute(compare=False, repr=False)
    conditions: int = attribute(compare=False, repr=False)
    size: int = attribute(compare=False, repr=False)

    def __str__(self) -> str:
        part = self.part
        if isinstance(part, Condition) and part.operator in ("==", "in"):
            word = "!=" if part.operator == "==" else "not in"
            return f"{part.field} {word} {json_text(part.value)}"
        return f"not ({part})" if isinstance(part, Group) else f"not {part}"


Node = Condition | Group | Not


def node_of(tree: FilterTree) -> Node:
    """Return a tree as a `Condition`, `Group` or `Not`."""
    if not isinstance(tree, (Condition, Group, Not)):
        raise TypeError(f"{type(tree).__name__} is not a filter of semlex")
    return tree


def leaves(tree: FilterTree) -> Iterator[Condition]:
    """Yield the conditions of a filter, from left to right."""
    node = node_of(tree)
    if isinstance(node, Condition):
        yield node
    for part in node.parts if isinstance(node, Group) else (node.part,) if isinstance(node, Not) else ():
        yield from leaves(part)


def joined(word: Literal["and", "or"], parts: Iterable[FilterTree], place: str = PLACE) -> FilterTree:
    """Join filters with *and* or *or* into one filter."""
    given = tuple(parts)
    if len(given) == 1:
        return given[0]
    conditions, size = sum(part.conditions for part in given), sum(part.size for part in given)
    if conditions > MAX_CONDITIONS:
        raise refusal(place, "too_long", f"{MAX_CONDITIONS} conditions", f"{conditions} conditions")
    if size > MAX_BYTES:
        raise refusal(place, "too_long", f"{MAX_BYTES} bytes", f"{size} bytes")
    flat: list[FilterTree] = []
    for part in given:
        flat += part.parts if isinstance(part, Group) and part.word == word else (part,)
    depth = 1 + max(part.depth - (isinstance(part, Group) and part.word == word) for part in given)
    return Group(word, tuple(flat), _checked_depth(depth, place), conditions, size)


def negated(tree: FilterTree, place: str = PLACE) -> FilterTree:
    """Return the filter that holds exactly if the given one does not."""
    node = node_of(tree)
    if isinstance(node, Not):
        return node.part
    return Not(node, _checked_depth(tree.depth + 1, place), tree.conditions, tree.size)


def _checked_depth(depth: int, place: str) -> int:
    if depth > MAX_DEPTH:
        raise refusal(place, "too_deep", str(MAX_DEPTH))
    return depth


def condition(field: Field, operator: Operator, value: object = None, place: str = PLACE) -> Condition:
    """Return the condition on a field with this operator and value; refuse what the field or operator cannot take."""
    kind = field.kind
    allowed = get_args(Operator) if kind is None else OPERATORS[kind]
    if operator not in allowed:
        raise refusal(place, "wrong_operator", ", ".join(allowed))
    if field.is_id:
        value = list(map(id_text, value)) if isinstance(value, (list, tuple)) else id_text(value)
    checked = None if operator in ALONE else _operand(kind, operator, value, place)
    made = Condition(field, operator, checked)
    if made.size > MAX_BYTES:
        raise refusal(place, "too_long", f"{MAX_BYTES} bytes", f"{made.size} bytes")
    return made


def _operand(kind: OwnKind | None, operator: str, value: object, place: str) -> Any:
    if operator in LISTS or (kind == "texts" and operator == "=="):
        if not isinstance(value, (list, tuple)):
            raise refusal(place, "wrong_type", "list", type(value).__name__)
        if not value:
            raise refusal(
                place,
                "wrong_type",
                "a list with at least one value, because the meaning of an empty one is unclear",
                "[]",
            )
        return [_single(kind, "==", one, place) for one in value]
    return _single(kind, operator, value, place)


def _single(kind: OwnKind | None, operator: str, value: object, place: str) -> Any:
    if not is_number(value) and not (kind == "instant" and isinstance(value, datetime)):
        value = json_scalar(value)
    if operator == "startswith":
        return _filled(value, place, "a text of at least one character")
    if operator in PATTERNS:
        return checked_pattern(value, place)
    if kind == "instant":
        return checked_instant(value, place)
    if kind == "key":
        return _document_key(value, place)
    if kind not in {None, "number"}:
        return _filled(value, place, "a text that is not empty (for a missing value, use not exists)")
    if kind == "number" and not is_number(value):
        raise refusal(place, "wrong_type", "a number", type(value).__name__)
    if operator in ORDER and not (is_number(value) or isinstance(value, str)):
        raise refusal(
            place, "wrong_type", "a number or a text, because other values have no order", type(value).__name__
        )
    return checked_value(value, place)


def _filled(value: object, place: str, expected: str) -> str:
    text = checked_text(value, place)
    if not text:
        raise refusal(place, "wrong_type", expected, "an empty one")
    return text


def _document_key(value: object, place: str) -> str:
    digits = checked_text(value, place).replace("-", "").lower()
    if len(digits) != _KEY_DIGITS or not set(digits) <= set("0123456789abcdef"):
        raise refusal(
            place,
            "wrong_type",
            "the key of a document: 32 hexadecimal digits, with which the ids of its chunks begin",
            "another text",
        )
    return digits


def between(field: Field, low: object, high: object, place: str = PLACE) -> FilterTree:
    """Return a filter for values between two bounds, both included."""
    bounds = condition(field, ">=", low, place), condition(field, "<=", high, place)
    first, last = (bound.value for bound in bounds)
    if is_number(first) and is_number(last):
        first, last = exact(first), exact(last)
    elif type(first) is not type(last):
        raise refusal(place, "wrong_type", "two bounds of one kind", f"{type(low).__name__} and {type(high).__name__}")
    if first > last:
        raise refusal(place, "wrong_type", "two bounds, the lower one first", "the reverse")
    return joined("and", bounds, place)


def listed(field: Field, values: Sequence[object], place: str = PLACE) -> FilterTree:
    """Return the filter ``{field: [...]}``: a list must contain all values, any other value must equal one of them."""
    if field.kind is not None:
        return condition(field, "all" if field.kind == "texts" else "in", values, place)
    return joined("or", (condition(field, "all", values, place), condition(field, "in", values, place)), place)


class F:
    """A field, to make filters in Python: ``(F("year") >= 2020) & F("tags").contains("draft")``.

    Args:
        name: A key of the metadata; dots lead into objects and lists (``author.name``, ``tags.0``), and ``'"a.b"'`` is
            one key. With ``@`` one of semlex's own fields.

    Raises:
        ValidationError: The name is invalid, or a value cannot be compared.
    """

    __slots__ = ("_field", "_place")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self._field = field_named(name, PLACE)
        self._place = self._field.place(PLACE)

    def __repr__(self) -> str:
        return f"F({str(self._field)!r})"

    def _condition(self, operator: Operator, value: object = None) -> Condition:
        return condition(self._field, operator, value, self._place)

    def __eq__(self, value: object) -> FilterTree:  # type: ignore[override]
        return self._condition("==", value)

    def __ne__(self, value: object) -> FilterTree:  # type: ignore[override]
        return negated(self._condition("==", value))

    def __lt__(self, value: object) -> FilterTree:
        return self._condition("<", value)

    def __le__(self, value: object) -> FilterTree:
        return self._condition("<=", value)

    def __gt__(self, value: object) -> FilterTree:
        return self._condition(">", value)

    def __ge__(self, value: object) -> FilterTree:
        return self._condition(">=", value)

    def between(self, low: object, high: object) -> FilterTree:
        """Return a filter: the value is between `low` and `high`, both included."""
        return between(self._field, low, high, self._place)

    def in_(self, values: Sequence[object]) -> FilterTree:
        """Return a filter: the value equals one of these."""
        return self._condition("in", values)

    def not_in(self, values: Sequence[object]) -> FilterTree:
        """Return a filter: the value equals none of these, or is missing."""
        return negated(self._condition("in", values))

    def contains(self, value: object) -> FilterTree:
        """Return a filter: the field is a list with this value."""
        return self._condition("contains", value)

    def any(self, values: Sequence[object]) -> FilterTree:
        """Return a filter: the field is a list with at least one of these."""
        return self._condition("any", values)

    def all(self, values: Sequence[object]) -> FilterTree:
        """Return a filter: the field is a list with all of these."""
        return self._condition("all", values)

    def exists(self) -> FilterTree:
        """Return a filter: the field has a value, null included."""
        return self._condition("exists")

    def empty(self) -> FilterTree:
        """Return a filter: the value is missing, null, an empty text, an empty list or an empty object."""
        return self._condition("empty")

    def startswith(self, prefix: str) -> FilterTree:
        """Return a filter: the value is a text that begins with `prefix`."""
        return self._condition("startswith", prefix)

    def like(self, pattern: str) -> FilterTree:
        r"""Return a filter: the text matches; ``%`` is any characters, ``_`` one, ``\`` escapes the next."""
        return self._condition("like", pattern)

    def ilike(self, pattern: str) -> FilterTree:
        """Return a filter as `like` does, with ``A`` to ``Z`` equal to ``a`` to ``z``; other letters are not folded."""
        return self._condition("ilike", pattern)
