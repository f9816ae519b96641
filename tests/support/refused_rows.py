"""What a function of the core refuses of rows, and values that are too deep for it."""

from __future__ import annotations

from typing import Any

import pytest

from semlex.errors import ValidationError


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def refusals(call: Any, *arguments: Any) -> list[tuple[int, str, str]]:
    """(row, field, code) of all errors that the call raises."""
    with pytest.raises(ValidationError) as caught:
        call(*arguments)
    return [(error.row, error.field, error.code) for error in caught.value.errors]
