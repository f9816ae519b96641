"""Checks of the vectors that a caller passes, and their conversion to float32."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from semlex.errors import FieldError, ValidationError
from semlex.validation import refuse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    # Shape (n, d); or a list with None for documents without a vector.
    Vectors = NDArray[np.float32] | list[NDArray[np.float32] | None]

SHOWN_ID_CHARACTERS = 80


def checked_array(values: ArrayLike, dimensions: int = 2) -> NDArray[np.float32]:
    """Return a caller's vectors as float32, the precision in which they are stored and compared.

    Numbers may be a list or an array of any float or integer type; raise `ValidationError` for anything else, rows of
    different lengths, an array with a mask, or another number of axes.
    """
    name = "vector" if dimensions == 1 else "embeddings"
    if isinstance(values, np.ma.MaskedArray):
        # Its masked elements would become numbers.
        limit = "an array without a mask, such as values.filled(0)"
        raise ValidationError(refuse(name, "wrong_type", limit, "masked array"))
    try:
        given = np.asarray(values)
    except (ValueError, TypeError, OverflowError, RuntimeError):
        # The reason quotes the value.
        raise ValidationError(refuse(name, "wrong_dtype", "float32", "ragged or not numbers")) from None
    if given.dtype.kind not in "fiu":
        raise ValidationError(refuse(name, "wrong_dtype", "float32", str(given.dtype)))
    if given.ndim != dimensions or given.shape[-1] == 0:
        expected = "(d,)" if dimensions == 1 else "(n, d)"
        raise ValidationError(refuse(name, "wrong_shape", expected, str(given.shape)))
    with np.errstate(over="ignore"):  # what becomes infinite is refused with its row
        return np.ascontiguousarray(given, dtype=np.float32)


def given_vectors(values: ArrayLike | Sequence[ArrayLike | None], ids: Sequence[Any]) -> Vectors | None:
    """Return the vectors of documents: an array (n, d), or a list with None in it; None if no document has one.

    Raise `ValidationError` that names every row that is not a vector of the first one's length; if all rows are wrong,
    it describes the whole argument instead.
    """
    try:
        return checked_array(cast("ArrayLike", values))  # None is refused, and looked for below
    except ValidationError as error:
        if not isinstance(values, (list, tuple)):
            raise
        of_all = error
    rows: list[NDArray[np.float32] | None] = []
    errors: list[FieldError] = []
    length: int | None = None
    for number, value in enumerate(values):
        own = ids[number] if number < len(ids) else None
        shown = own[:SHOWN_ID_CHARACTERS] if isinstance(own, str) and own else None
        try:
            row = None if value is None else checked_array(value, 1)
        except ValidationError as error:
            errors += [replace(one, row=number, id=shown, field="embedding") for one in error.errors]
            continue
        if row is not None:
            length = len(row) if length is None else length
            if len(row) != length:
                errors.append(FieldError(number, shown, "embedding", "wrong_dimension", str(length), str(len(row))))
        rows.append(row)
    if errors:
        raise ValidationError(errors) if rows else of_all
    return None if length is None else rows
