"""Which field of given rows is what."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.validation import check_parameters, strings_errors, text_parameter

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Every field beside text, vector and id is a key of the metadata of every row.
MAX_FIELDS = 1_000
SHOWN_FIELDS = 12


@dataclass(frozen=True, slots=True)
class RowFields:
    """Names of the fields of rows.

    Attributes:
        text: The text.
        vector: Its vector.
        id: What names a row, text or whole number; None is ``id`` where there is one, else ids are made from the rows.
        metadata: Fields that become metadata, each under its name; None is all others.
        merged: A field that holds objects, or their JSON text: their keys become metadata as they are.
    """

    text: str = "text"
    vector: str = "vector"
    id: str | None = None
    metadata: Sequence[str] | None = None
    merged: str = "metadata"

    def checked(self) -> RowFields:
        """These, where every one of them is a name and none is named twice."""
        named = self.metadata
        given = {"text": self.text, "vector": self.vector, "id": self.id, "metadata": self.merged}
        check_parameters(
            *(text_parameter(f"{name}_field", value) for name, value in given.items()),
            [] if named is None else strings_errors("metadata_fields", named),
        )
        single = [name for name in (self.text, self.vector, self.id) if name is not None]
        twice = [name for name in single if single.count(name) > 1 or name in (named or ())]
        if twice:
            raise ConfigurationError(
                f"the field {twice[0]!r} is named for two things: name another one for one of them"
            )
        return self

    def id_in(self, there: Iterable[str]) -> str | None:
        """The field that names a row, where there is one."""
        return self.id if self.id is not None else "id" if "id" in set(there) else None

    def metadata_in(self, there: Iterable[str]) -> list[str]:
        """The fields that become metadata."""
        if self.metadata is not None:
            return list(self.metadata)
        taken = {self.text, self.vector, self.id_in(there)}
        return [name for name in there if name not in taken]

    def check(self, there: Sequence[str], where: str, *, whole: bool = True) -> None:
        """Refuses rows without the fields that are needed."""
        if len(there) > MAX_FIELDS and self.metadata is None:
            raise ConfigurationError(
                f"{where} has {len(there):,} fields, at most {MAX_FIELDS:,} become metadata: name those that are to "
                "be kept (metadata_fields=, --metadata-field)"
            )
        used = {self.text, self.vector, self.id_in(there), *self.metadata_in(there)}
        repeated = [name for name, count in Counter(there).items() if count > 1 and name in used]
        if repeated:
            raise ConfigurationError(f"{where} has two fields named {repeated[0]!r}: rename one of them")
        needed = [("text_field", self.text), ("vector_field", self.vector)]
        needed += [("id_field", self.id)] if self.id is not None else []
        needed += [("metadata_fields", name) for name in self.metadata or ()] if whole else []
        for option, name in needed:
            if name not in there:
                raise ConfigurationError(f"{where} has no field {name!r}: {option} names one of {_shown(there)}")


def _shown(names: Sequence[str]) -> str:
    rest = len(names) - SHOWN_FIELDS
    shown = ", ".join(f"{str(name)[:40]!r}" for name in names[:SHOWN_FIELDS])
    return f"{shown} and {rest:,} more" if rest > 0 else shown or "no fields"
