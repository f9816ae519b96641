"""Values that break stores: texts, ids, metadata, times, languages, vectors, queries and filters, drawn at random."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex.types.documents import MAX_CHUNK_BYTES, MAX_ID_BYTES, Document
from semlex.types.queries import MAX_QUERY_BYTES

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

DIMENSIONS = 8
TEXTS: tuple[str, ...] = (
    "",
    " ",
    "\0",
    "a\0b",
    "\ud800",
    "\udfff tail",
    "\ud83d\ude00",
    "\ufeff",
    "\u202e right to left \u202c",
    "\x1b]0;title\x07\x1b[2J",
    "\x7f\x80\x9f",
    "\r\n\t\v\f",
    "é" * 3 + "e\u0301",
    "\U0010ffff\ufffe",
    "'; DROP SCHEMA semlex CASCADE; --",
    "%s %(name)s {} {0} $1 :x ?",
    "\\x00 \\u0000 \\",
    '"quoted phrase" -word +word OR AND (',
    '"' * 50,
    "-" * 50,
    "-a " * 700,
    "x/" * 255 + "y",
    "a" * (MAX_ID_BYTES - 1),
    "a" * MAX_ID_BYTES,
    "a" * (MAX_ID_BYTES + 1),
    "ß" * (MAX_QUERY_BYTES // 2),
    "ß" * (MAX_QUERY_BYTES // 2 + 1),
    "word " * 900,
    "w" * MAX_CHUNK_BYTES,
    "w" * (MAX_CHUNK_BYTES + 1),
    "中文字" * 60,
    "ไทยแลนด์" * 20,
    "NaN",
    "null",
    "true",
    "1e400",
    "plain words of a harmless text",
)
NUMBERS: tuple[Any, ...] = (
    0,
    -0.0,
    1.5,
    2**31,
    2**53 + 1,
    -(2**63),
    2**64,
    10**400,
    1e22,
    1e23,
    5e-324,
    1.7976931348623157e308,
    float("nan"),
    float("inf"),
    float("-inf"),
    0.1,
)
STRANGERS: tuple[Any, ...] = (
    b"bytes",
    bytearray(b"x"),
    {1, 2},
    object(),
    dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    dt.date(2020, 1, 1),
    decimal.Decimal("1.1"),
    1j,
    np.float32(1.5),
    np.int64(3),
    np.array([1, 2]),
    lambda: 0,
    Ellipsis,
    (1, 2),
)
TIMES: tuple[Any, ...] = (
    dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
    dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    dt.datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=dt.UTC),
    dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=14))),
    dt.datetime(9999, 12, 31, 23, tzinfo=dt.timezone(-dt.timedelta(hours=12))),
    dt.datetime(2020, 1, 1),  # noqa: DTZ001 - without a zone on purpose
    dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta(seconds=1))),
    None,
    "2020-01-01",
    0,
)
LANGUAGES: tuple[Any, ...] = (None, "german", "de", "klingon", "", "\0", "x" * 5_000, 5, b"de", [])


def text(draw: random.Random) -> str:
    """Return a hostile text, or two of them joined."""
    first = draw.choice(TEXTS)
    return first + draw.choice(TEXTS) if draw.random() < 0.2 else first


def value(draw: random.Random, depth: int = 0) -> Any:
    """Return a value for metadata or a filter, usually JSON."""
    kinds: list[Callable[[], Any]] = [
        lambda: text(draw),
        lambda: draw.choice(NUMBERS),
        lambda: draw.choice((True, False, None)),
        lambda: draw.choice(STRANGERS),
        lambda: nested(draw),
        lambda: [] if depth > 2 else [value(draw, depth + 1) for _ in range(draw.randrange(4))],
        lambda: {} if depth > 2 else mapping(draw, depth + 1),
    ]
    return draw.choices(kinds, (35, 25, 10, 5, 5, 10, 10))[0]()


def nested(draw: random.Random) -> Any:
    """Return nested lists and mappings, up to and beyond the maximum depth."""
    found: Any = 1
    for _ in range(draw.choice((3, 62, 63, 64, 65, 500))):
        found = [found] if draw.random() < 0.5 else {"k": found}
    return found


def mapping(draw: random.Random, depth: int = 0) -> dict[Any, Any]:
    """Return metadata whose keys are mostly texts."""
    names = ("key", "source_document", "similarity", "token_count", "$gt", "metadata", "subsection_title")
    found: dict[Any, Any] = {}
    for _ in range(draw.randrange(4)):
        name: Any = draw.choice(names) if draw.random() < 0.6 else text(draw)
        found[5 if draw.random() < 0.03 else name] = value(draw, depth)
    return found


def good_document(draw: random.Random) -> Document:
    """Return a document that every store accepts."""
    return Document(f"harmless text {draw.random()}", {"key": draw.random()}, f"good-{draw.random()}")


def document(draw: random.Random) -> Any:
    """Return a document with some hostile fields; rarely a value that is not a document."""
    if draw.random() < 0.02:
        return draw.choice((*STRANGERS, None, "text", {"content": "x"}))
    fields: dict[str, Any] = {"content": "harmless", "id": f"id-{draw.random()}"}
    hostile: dict[str, Callable[[], Any]] = {
        "content": lambda: text(draw) if draw.random() < 0.9 else draw.choice((*STRANGERS, None)),
        "id": lambda: text(draw) if draw.random() < 0.9 else draw.choice((*STRANGERS, None)),
        "metadata": lambda: mapping(draw) if draw.random() < 0.95 else value(draw),
        "parent_id": lambda: draw.choice((None, text(draw), 5)),
        "child_ids": lambda: draw.choice(([], [text(draw)], ["a", "b"], [5], 5, None)),
        "created_at": lambda: draw.choice(TIMES),
        "updated_at": lambda: draw.choice(TIMES),
        "language": lambda: draw.choice(LANGUAGES),
    }
    for name in draw.sample(sorted(hostile), draw.choice((1, 1, 2, 3))):
        fields[name] = hostile[name]()
    return Document(**fields)


def vectors(draw: random.Random, rows: int) -> Any:
    """Return vectors for some rows, or None; half of them are valid."""
    if draw.random() < 0.5:
        return None
    made: Any = np.array([[draw.gauss(0, 1) for _ in range(DIMENSIONS)] for _ in range(rows)], dtype=np.float32)
    if draw.random() < 0.5:
        return made
    change = draw.randrange(9)
    if change < 6:
        made[draw.randrange(rows)] = (float("nan"), float("inf"), 0.0, 1e-30, 3e38, 1e-45)[change]
        return made
    return (made[:-1], made[:, :-1], made.astype(object))[change - 6]


def filters(draw: random.Random) -> Any:
    """Return a hostile filter, mostly a mapping."""
    return value(draw) if draw.random() < 0.1 else mapping(draw)
