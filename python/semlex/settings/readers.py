"""What turns a text, or a value of a file, into a setting's own; `ValueError` says what it must be."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from semlex.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

SHOWN_CHARACTERS = 40
SWITCH = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def model_names(value: object) -> list[str]:
    """A list of models: names with commas between them, or a list of names."""
    entries = value.split(",") if isinstance(value, str) else value
    if not isinstance(entries, (list, tuple)) or not all(isinstance(entry, str) for entry in entries):
        raise ConfigurationError('models must be a list of names, for example models = ["ollama:qwen3-embedding"]')
    return [entry.strip() for entry in entries if entry.strip()]


def text(value: Any) -> str:
    """A text."""
    if not isinstance(value, str):
        raise ValueError("must be a text, between quotes")  # noqa: TRY004 - one kind of error for all readers
    return value


def folder(value: Any) -> Path:
    """A path, with ``~`` for a home."""
    try:
        return (value if isinstance(value, Path) else Path(text(value))).expanduser()
    except RuntimeError:
        raise ValueError(f"begins with the home of a user that does not exist; got {shown(str(value))}") from None


def whole(value: Any) -> int:
    """A whole number."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().isascii() and value.strip().isdigit():
        return int(value)
    raise ValueError(f"must be a whole number; got {shown(value)}")


def whole_between(least: int, most: int) -> Callable[[Any], int]:
    """Reads a whole number within bounds."""

    def read(value: Any) -> int:
        number = whole(value)
        if not least <= number <= most:
            raise ValueError(f"must be between {least:,} and {most:,}; got {shown(value)}")
        return number

    return read


def number_between(least: float, most: float, what: str = "a number") -> Callable[[Any], float]:
    """Reads a finite number within bounds."""
    bounds = f"at least {least:g}" if most == math.inf else f"between {least:g} and {most:g}"

    def read(value: Any) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if isinstance(value, bool) or not (least <= number <= most and math.isfinite(number)):
            raise ValueError(f"must be {what}, {bounds}; got {shown(value)}")
        return number

    return read


def switch(value: Any) -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    if not isinstance(value, str) or value.lower() not in SWITCH:
        raise ValueError(f"must be true or false; got {shown(value)}")
    return SWITCH[value.lower()]


def reranking(value: Any) -> bool | Literal["auto"]:
    """True, false or ``auto``."""
    if value == "auto":
        return "auto"
    try:
        return switch(value)
    except ValueError:
        raise ValueError(f"must be true, false or auto; got {shown(value)}") from None


def one_of(*known: str) -> Callable[[Any], str]:
    """Reads one of some words."""
    listed = f"{', '.join(known[:-1])} or {known[-1]}"

    def read(value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            raise ValueError(f"must be {listed}; got {shown(value)}")
        return value

    return read


def names(value: Any) -> tuple[str, ...]:
    """A list of models."""
    try:
        return tuple(model_names(value))
    except ConfigurationError as error:
        raise ValueError(str(error).removeprefix("models ")) from None


def shown(value: object) -> str:
    """A refused value, for a message; what may hold anything, by its kind."""
    if isinstance(value, (dict, list, tuple)):
        return "a table" if isinstance(value, dict) else "a list"
    found = repr(value)
    return found if len(found) <= SHOWN_CHARACTERS else f"{found[:SHOWN_CHARACTERS]}…"
