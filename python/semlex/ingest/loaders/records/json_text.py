"""JSON as values, within bounds: so deep, so many values, no numbers that are none."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any

from semlex.ingest.loaders.base import LoadError
from semlex.types.documents import MAX_METADATA_BYTES, MAX_METADATA_DEPTH

if TYPE_CHECKING:
    from collections.abc import Mapping

# A value takes up to 150 bytes in memory, whatever it takes in the file.
MAX_VALUES = 2_000_000
# A text, up to its end or that of the file. What was taken is never given back, so the time is that of the length.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKET = re.compile(r"[\[\]{}]")


class _RefusedError(ValueError):
    """A value that JSON or a store does not have."""


def parse_json(text: str, *, line: int | None = None, max_depth: int = MAX_METADATA_DEPTH) -> Any:
    """The value that a JSON text is."""
    _check_structure(text, line, max_depth)
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno if line is None else line}, column {error.colno}"
        raise LoadError("bad_json", f"{place} is not JSON: {error.msg.lower()}; correct the file") from None
    except _RefusedError as error:
        raise LoadError("bad_json", f"{_where(line)}{error}") from None
    except ValueError:  # more digits than Python reads
        raise LoadError("bad_json", f"{_where(line)}a number has too many digits: make it a text") from None
    except RecursionError:  # the caller's stack is nearly full
        raise LoadError("bad_json", f"{_where(line)}the values are nested too deeply: make them flat") from None


def check_metadata(metadata: Mapping[str, Any], where: str) -> None:
    """Refuses metadata that is too large."""
    size = len(json.dumps(metadata, ensure_ascii=False, check_circular=False).encode())
    if size > MAX_METADATA_BYTES:
        message = f"the metadata has {size} bytes, the limit is {MAX_METADATA_BYTES}; name long fields as text fields"
        raise LoadError("metadata_too_large", f"{where}: {message}")


def _check_structure(text: str, line: int | None, max_depth: int) -> None:
    structure = _STRING.sub("", text)
    values = structure.count(",") + structure.count("[") + structure.count("{")
    if values > MAX_VALUES:
        message = f"more than {MAX_VALUES} values: split the file"
        raise LoadError("too_many_values", f"{_where(line)}{message}")
    depth = 0
    for found in _BRACKET.finditer(structure):
        depth += 1 if found[0] in "[{" else -1
        if depth > max_depth:
            message = f"the values are nested more than {max_depth} deep: make them flat"
            raise LoadError("bad_json", f"{_where(line)}{message}")


def _where(line: int | None) -> str:
    return "" if line is None else f"line {line}: "


def _refuse_constant(name: str) -> None:
    raise _RefusedError(f"{name} is no number in JSON: write null or leave it out")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _RefusedError("a number is too large: make it a text")
    return number


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _RefusedError("an object has one name twice: keep one of them")
    return made


# Made once: to make one takes longer than to read a line.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_object)
