"""What a function of the core refuses of rows, and values that are too deep for it."""

import pytest

from semlex.errors import ValidationError


def nested(depth):
    value = []
    for _ in range(depth - 1):
        value = [value]
    return value


def refusals(call, *arguments):
    """(row, field, code) of all errors that the call raises."""
    with pytest.raises(ValidationError) as caught:
        call(*arguments)
    return [(error.row, error.field, error.code) for error in caught.value.errors]
