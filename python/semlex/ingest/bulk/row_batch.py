"""Check the rows that a caller gives: texts, metadata and vectors of one batch."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semlex.errors import ConfigurationError, FieldError, ValidationError
from semlex.ingest.given_documents import NO_METADATA, SHOWN_ID_CHARACTERS, GivenDocuments
from semlex.json_values import id_text
from semlex.validation import check_parameters, strings_errors, text_parameter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray


# Every other field is a key of every row's metadata.
MAX_FIELDS = 1_000
SHOWN_FIELDS = 12


@dataclass(frozen=True, slots=True)
class RowFields:
    """The names of the fields of a row, as arguments of `Collection.tables.load` give them.

    Attributes:
        text: Field of the text.
        vector: Field of the vector.
        id: Field of the id; None: ``id``, if that field exists.
        metadata: Fields that become metadata; None: all others.
        merged: A field that holds objects, whose keys become metadata.
        has_vectors: Whether vectors are read.
    """

    text: str = "text"
    vector: str = "vector"
    id: str | None = None
    metadata: Sequence[str] | None = None
    merged: str = "metadata"
    has_vectors: bool = True


def checked_fields(fields: RowFields) -> RowFields:
    """Return `fields` after checking that each is a name and none is used twice."""
    named = fields.metadata
    given = {"text": fields.text, "vector": fields.vector, "id": fields.id, "metadata": fields.merged}
    check_parameters(
        *(text_parameter(f"{name}_field", value) for name, value in given.items()),
        [] if named is None else strings_errors("metadata_fields", named),
    )
    single = [name for name in (fields.text, fields.vector, fields.id) if name is not None]
    twice = [name for name in single if single.count(name) > 1 or name in (named or ())]
    if twice:
        raise ConfigurationError(
            f"the field {twice[0]!r} is used for two purposes: choose another field for one of them"
        )
    return fields


def id_field(fields: RowFields, there: Iterable[str]) -> str | None:
    """Return the field that holds ids: the given one, else ``id`` if the rows have it, else None."""
    return fields.id if fields.id is not None else "id" if "id" in set(there) else None


def metadata_fields(fields: RowFields, there: Iterable[str]) -> list[str]:
    """Return the fields that become metadata."""
    if fields.metadata is not None:
        return list(fields.metadata)
    taken = {fields.text, fields.vector, id_field(fields, there)}
    return [name for name in there if name not in taken]


def used_fields(fields: RowFields, there: Sequence[str]) -> set[str | None]:
    """Return the fields that are read: of the text, the vector, the id (None without one) and the metadata."""
    return {fields.text, fields.vector, id_field(fields, there), *metadata_fields(fields, there)}


def check_fields(fields: RowFields, there: Sequence[str], where: str, *, whole: bool = True) -> None:
    """Refuse rows (of the file or table `where`) that lack a required field or have too many or repeated fields."""
    if len(there) > MAX_FIELDS and fields.metadata is None:
        raise ConfigurationError(
            f"{where} has {len(there):,} fields, at most {MAX_FIELDS:,} become metadata: name those that are to "
            "be kept (metadata_fields=, --metadata-field)"
        )
    used = used_fields(fields, there)
    repeated = [name for name, count in Counter(there).items() if count > 1 and name in used]
    if repeated:
        raise ConfigurationError(f"{where} has two fields named {repeated[0]!r}: rename one of them")
    needed = [("text_field", fields.text)]
    needed += [("vector_field", fields.vector)] if fields.has_vectors else []
    needed += [("id_field", fields.id)] if fields.id is not None else []
    needed += [("metadata_fields", name) for name in fields.metadata or ()] if whole else []
    for option, name in needed:
        if name not in there:
            raise ConfigurationError(f"{where} has no field {name!r}: {option} must name one of {_shown(there)}")


def _shown(names: Sequence[str]) -> str:
    rest = len(names) - SHOWN_FIELDS
    shown = ", ".join(f"{str(name)[:40]!r}" for name in names[:SHOWN_FIELDS])
    return f"{shown} and {rest:,} more" if rest > 0 else shown or "no fields"


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Consecutive rows of one file or table; `first` is the number of the first row, from 0; vectors are float32."""

    where: str
    first: int
    ids: list[str]
    texts: list[str]
    metadata: list[dict[str, Any]]
    vectors: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.texts)

    @classmethod
    def joined(cls, batches: Sequence[RowBatch]) -> RowBatch:
        """Join batches, each of which must follow the one before (`follows`)."""
        first = batches[0]
        if len(batches) == 1:
            return first
        return replace(
            first,
            ids=[one for batch in batches for one in batch.ids],
            texts=[text for batch in batches for text in batch.texts],
            metadata=[one for batch in batches for one in batch.metadata],
            vectors=np.concatenate([batch.vectors for batch in batches]),
        )

    def follows(self, other: RowBatch) -> bool:
        """Return whether these rows come right after the others and have vectors of the same length."""
        width = self.vectors.shape[1] == other.vectors.shape[1]
        return width and self.where == other.where and self.first == other.first + len(other)

    def given(self, fields: RowFields, storage: str) -> GivenDocuments:
        """Return the rows as checked documents."""
        documents = GivenDocuments.plain(self.ids, self.texts, self.metadata)
        try:
            return documents.checked(self.vectors if fields.has_vectors else None, storage)
        except ValidationError as error:
            names = {"content": fields.text, "embedding": fields.vector, "id": fields.id or "id"}
            raise ValidationError(
                (replace(one, row=self.first + one.row, field=names.get(one.field, one.field)) for one in error.errors),
                f"in {self.where}" if self.where else "",
            ) from None


@contextmanager
def found_in(where: str) -> Iterator[None]:
    """Add the file's name to errors about its rows."""
    try:
        yield
    except ValidationError as error:
        raise ValidationError(error.errors, f"in {where}") from None


def batch_of(columns: Mapping[str, Any], count: int, fields: RowFields, *, where: str = "", first: int = 0) -> RowBatch:
    """Make a batch from columns of Python values; a missing value is None."""
    names = list(columns)
    ids_from = id_field(fields, names)
    found = _Found(first, _ids_of(columns[ids_from], ids_from, first) if ids_from is not None else [""] * count)
    vectors = columns[fields.vector] if fields.has_vectors else np.empty((0, 0), np.float32)
    return RowBatch(
        where,
        first,
        found.ids,
        found.given(columns[fields.text], fields.text),
        found.metadata({name: columns[name] for name in metadata_fields(fields, names)}, count, fields.merged),
        vectors if isinstance(vectors, np.ndarray) else found.vectors(vectors, fields.vector),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    first: int
    ids: list[str]

    def error(self, row: int, field: str, code: str, limit: str | None = None, actual: str | None = None) -> FieldError:
        return FieldError(self.first + row, self.ids[row][:SHOWN_ID_CHARACTERS] or None, field, code, limit, actual)

    def given(self, values: Sequence[Any], field: str) -> list[Any]:
        missing = [self.error(row, field, "missing") for row, value in enumerate(values) if value is None]
        if missing:
            raise ValidationError(missing)
        return list(values)

    def vectors(self, values: Sequence[Any], field: str) -> NDArray[np.float32]:
        """Return lists of numbers as an array; all must be as long as the first."""
        rows, errors = [], []
        length: int | None = None
        for number, value in enumerate(self.given(values, field)):
            try:
                with np.errstate(over="ignore"):  # an infinite number is refused with its row
                    row = np.asarray(value, dtype=np.float32)
            except (TypeError, ValueError, OverflowError):
                row = np.empty((0, 0), np.float32)
            if row.ndim != 1 or isinstance(value, (str, bytes)):
                errors.append(self.error(number, field, "wrong_type", "a list of numbers", type(value).__name__))
                continue
            length = row.shape[0] if length is None else length
            if row.shape[0] != length:
                errors.append(self.error(number, field, *unequal(length, row.shape[0])))
            rows.append(row)
        if errors:
            raise ValidationError(errors)
        return np.stack(rows) if rows else np.empty((0, 0), np.float32)

    def metadata(self, columns: Mapping[str, Sequence[Any]], count: int, merged: str) -> list[dict[str, Any]]:
        """Return the metadata of each row, without fields that are empty."""
        if not columns:
            return [NO_METADATA] * count
        objects = [self.object(value, row, merged) for row, value in enumerate(columns.get(merged, ()))]
        names = [name for name in columns if name != merged]
        rows = zip(*(columns[name] for name in names), strict=True) if names else ((),) * count
        made = [{name: value for name, value in zip(names, row, strict=True) if value is not None} for row in rows]
        return [{**one, **own} for one, own in zip(objects, made, strict=True)] if objects else made

    def object(self, value: Any, row: int, field: str) -> dict[str, Any]:
        """Return the metadata object of a row, which may be given as JSON text."""
        given = value
        if isinstance(value, str):
            try:
                given = json.loads(value)
            except (ValueError, RecursionError):  # refused below
                given = None
        if isinstance(given, dict):
            return given
        if value is None:
            return {}
        expected = "an object, or the JSON text of one"
        raise ValidationError([self.error(row, field, "wrong_type", expected, type(value).__name__)])


def unequal(length: int, found: int) -> tuple[str, str, str]:
    """Return the error of a vector whose length differs from the others: its code, expected and found length."""
    return "wrong_dimension", str(length), str(found)


def _ids_of(values: Sequence[Any], field: str, first: int) -> list[str]:
    ids, errors = [], []
    for row, value in enumerate(map(id_text, values)):
        if isinstance(value, str) and value:
            ids.append(value)
        else:
            code = "missing" if value is None or value == "" else "wrong_type"
            errors.append(FieldError(first + row, None, field, code, "a text or a whole number", type(value).__name__))
    if errors:
        raise ValidationError(errors)
    return ids
