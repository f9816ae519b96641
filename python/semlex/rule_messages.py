"""The error message of each broken rule: one sentence for each code."""

from __future__ import annotations

import re
from typing import NamedTuple

# If `actual` begins so, it is an offset and not a value.
_OFFSET = re.compile(r"(character|component|element|index|bit|byte) \d+")
_NUMBER = re.compile(r"(?<![\w.,*])\d{4,}(?![\w.*])")
_SINGULAR = re.compile(r"(?<![\d,.])1 (byte|character|component|digit|level|text|id|row|column)s\b")
_BARE_WORD = re.compile(r"[A-Za-z_]\w*(\[.*\])?")

# What to do about a value that JSON does not know, by its type.
JSON_REMEDIES = {
    "datetime": "use a string (value.isoformat())",
    "time": "use a string (value.isoformat())",
    "PosixPath": "use a string (str(value))",
    "bytes": "use a string (value.decode())",
    "set": "use a list (sorted(value))",
    "frozenset": "use a list (sorted(value))",
    "ndarray": "use a list (value.tolist())",
    "NAType": "use None",
    "timedelta": "use a number (value.total_seconds())",
}
# Scalars of NumPy, where a number of Python is needed.
_NUMPY_SCALAR = re.compile(r"u?int\d+|float\d+|longdouble").fullmatch


class Rule(NamedTuple):
    """The message of a broken rule.

    Attributes:
        text: The text after the field's name, with the placeholders ``{limit}``, ``{actual}`` and ``{at}``.
        remedy: What the user can do; empty if the text says it.
        plain: Replaces `text` if the limit (or the actual value) is unknown.
        alone: Replaces `remedy` if the value belongs to no row, as in a question; None to use `remedy`.
    """

    text: str
    remedy: str = ""
    plain: str = ""
    alone: str | None = None


RULES = {
    "all_zero": Rule(
        "holds only zeros and has no direction",
        "leave the row out or embed its text again",
        alone="give the vector of a text that the model knows, or the text itself",
    ),
    "bad_identifier": Rule(
        "must begin with a-z or _ and hold only a-z, 0-9 and _; it does not{at}", "choose a name such as my_docs"
    ),
    "blank": Rule("is blank: it must have at least {limit}", plain="is blank: it must have at least 1 character"),
    "key_not_string": Rule(
        "has {actual} as a key; keys of JSON are strings", "use str(key)", plain="has a key that is not a string"
    ),
    "length_differs": Rule("must have {limit} rows, as many as the others", "give one per row", "has another length"),
    "lone_surrogate": Rule(
        "holds half of a surrogate pair{at}, which has no UTF-8 form",
        "read the text with its right encoding, or replace what is broken (text.encode(errors='replace').decode())",
    ),
    "malformed_copy": Rule("is not a binary COPY stream of these types{at}", "read the table again"),
    "missing": Rule("must be given: {limit}", plain="must be given, and not be None"),
    "naive_timestamp": Rule("has no time zone", "give it one (value.replace(tzinfo=datetime.UTC))"),
    "norm_out_of_range": Rule(
        "must have a length of {limit}", "divide it by its length", "has a length for which no cosine can be computed"
    ),
    "not_ascending": Rule("must have indices that ascend{at}", "sort them and leave out repeated ones"),
    "not_binary": Rule("must hold only 0 and 1{at}", "convert it (values > 0)"),
    "not_finite": Rule(
        "holds NaN or infinity{at}", "use a finite number or None, or leave the row out", alone="use a finite number"
    ),
    "not_usable": Rule("must have {limit}", "leave the row out or embed its text again", "cannot be used", alone=""),
    "nul": Rule("holds a NUL character{at}, which Postgres cannot store", r"remove it (text.replace('\0', ''))"),
    "out_of_range": Rule("must be {limit}", plain="is out of range"),
    "reserved_name": Rule("begins with pg_, which belongs to Postgres", "choose another name"),
    "syntax": Rule("is not understood: {limit}", plain="is not understood"),
    "too_deep": Rule(
        "must be nested at most {limit}",
        "store the inner part as a string (json.dumps)",
        "is nested too deeply",
        alone="nest it less deeply",
    ),
    "too_long": Rule("must have at most {limit}", "shorten or split it", "is too long"),
    "too_short": Rule("must have at least {limit}", plain="is too short"),
    "unequal_lengths": Rule("must match {limit}", "give one for each", "has another length"),
    "unknown_field": Rule("is not a field here; fields: {limit}", plain="is not a field here"),
    "unknown_language": Rule(
        "is not a language that the keyword index knows",
        "use an English name or ISO 639-1 code such as german or de, 'simple', or None for the collection's",
    ),
    "unknown_live_column": Rule(
        "is not a live column of a followed table: {limit}", plain="is not a live column of a followed table"
    ),
    "unknown_type": Rule("must be one of {limit}", plain="has an unknown type"),
    "unsupported_type": Rule(
        "has {actual}, which JSON does not know",
        "use dict, list, str, int, float, bool or None",
        "has a value that JSON does not know",
    ),
    "wrong_dimension": Rule(
        "must have {limit} components", "use the collection's embedding model", "has another number of components"
    ),
    "wrong_dtype": Rule(
        "must be {limit}",
        "use rows of equally many numbers, as numpy.asarray(values, dtype='float32')",
        "has a dtype that cannot be used",
    ),
    "wrong_layout": Rule(
        "must be contiguous in memory and must not change during the call", "use numpy.ascontiguousarray(values)"
    ),
    "wrong_operator": Rule("is not an operator here; operators: {limit}", plain="is not an operator here"),
    "wrong_shape": Rule("must have the shape {limit}", "use values.reshape", "has another shape than is needed"),
    "wrong_type": Rule("must be {limit}", plain="is of a type that cannot be used"),
    "zero_value": Rule("must not name components that are zero{at}", "leave them out"),
}
# Codes whose text says what was found.
_NO_FINDING = ("blank", "not_finite")
_UNKNOWN = Rule("must be {limit}", plain="is refused")


def sentence(name: str, code: str, limit: str | None = None, actual: str | None = None, *, of_row: bool = True) -> str:
    """Return the sentence that says what is wrong with a field, and what helps."""
    rule = RULES.get(code, _UNKNOWN)
    offset = actual if actual is not None and _OFFSET.match(actual) else None
    found = None if offset else actual
    values = {
        "limit": _bound(code, limit),
        "actual": None if actual is None else _with_article(actual),
        "at": "" if offset is None else f" (at {readable(offset).replace('character', 'offset')})",
    }
    text = rule.text
    if any(f"{{{key}}}" in text and value is None for key, value in values.items()):
        text = rule.plain
    has_actual = "{actual}" in text or code in _NO_FINDING
    has_offset = "{at}" in text
    text = f"{name} {text.format(**values)}"
    if offset and not has_offset:
        text += str(values["at"])
    if found is not None and not has_actual:
        text += f"; got {_with_article(found) if code == 'wrong_type' else readable(found)}"
    remedy = rule.remedy if of_row or rule.alone is None else rule.alone
    if code == "unsupported_type":
        remedy = JSON_REMEDIES.get(actual or "", remedy)
    if code == "wrong_type" and actual is not None and _NUMPY_SCALAR(actual):
        remedy = "write int(value)" if "int" in actual else "write float(value)"
    if code == "wrong_type" and actual in ("ndarray", "Series") and (limit or "").startswith("list"):
        remedy = "write value.tolist()"
    return f"{text}: {remedy}" if remedy else text


def _bound(code: str, limit: str | None) -> str | None:
    if limit is None:
        return None
    if code == "wrong_type":
        return _with_article(limit)
    text = readable(limit)
    if code == "out_of_range" and text.endswith(" digits"):
        return f"an integer of at most {text}"
    if code == "out_of_range" and " to " in text:
        return "between {} and {}".format(*text.split(" to "))
    return f"{text} levels" if code == "too_deep" and text.isdigit() else text


def _with_article(word: str) -> str:
    """Return a type's name with an article: ``datetime`` as "a datetime", ``NoneType`` as "None"; phrases unchanged."""
    if word == "NoneType":
        return "None"
    if word.endswith("s") or not _BARE_WORD.fullmatch(word.split(" of ", maxsplit=1)[0]):
        return readable(word)
    return f"{'an' if word[0] in 'aeioAEIO' or word == 'ndarray' else 'a'} {word}"


def readable(text: str) -> str:
    """Add thousands separators and make units singular after 1; years and shapes are returned unchanged."""
    if not text.startswith("years") and "(" not in text:
        text = _NUMBER.sub(lambda number: f"{int(number[0]):,}", text)
    return _SINGULAR.sub(r"1 \1", text)
