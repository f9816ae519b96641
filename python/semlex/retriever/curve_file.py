"""Curves of confidence in files, for those who may not write the database."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from semlex.errors import CalibrationFileError, ConfigurationError
from semlex.types.confidence import ConfidenceCurve

if TYPE_CHECKING:
    from os import PathLike

MAX_BYTES = 64 * 1024


def read_curve(path: str | PathLike[str]) -> ConfidenceCurve:
    """The curve of a file."""
    file = Path(path)
    try:
        with file.open("rb") as stream:
            stored = json.loads(stream.read(MAX_BYTES))
    except OSError as error:
        raise CalibrationFileError(f"the calibration {str(file)!a} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        stored = None
    try:
        return ConfidenceCurve.from_dict(stored, f"the file {str(file)!a}")
    except ConfigurationError as error:
        raise CalibrationFileError(str(error)) from None


def write_curve(path: str | PathLike[str], curve: ConfidenceCurve) -> None:
    """Writes a curve into a file."""
    try:
        Path(path).write_text(json.dumps(curve.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"the calibration {str(path)!a} cannot be written: {error.strerror}") from None
