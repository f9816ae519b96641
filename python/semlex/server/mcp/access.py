"""What an assistant may reach: which collections, whether it may write, which folders it may have read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from semlex.errors import ConfigurationError
from semlex.server.access.rights import ORDER, Reaching
from semlex.store.schema.names import Names
from semlex.validation import check_parameters, strings_errors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semlex.operations import Rights
    from semlex.server.access.rights import Caller


@dataclass(frozen=True, slots=True)
class Access(Reaching):
    """What is within reach; by default every collection, for reading.

    Attributes:
        collections: Names of the only collections that there are for the assistant; None: all of the schema.
        rights: What it may do, as in `OPERATIONS`.
        folders: Folders that it may have indexed, with all below them, links followed.
    """

    collections: frozenset[str] | None = None
    rights: Rights = "read"
    folders: tuple[Path, ...] = ()

    @classmethod
    def of(cls, collections: Sequence[str] = (), *, writes: bool = False, folders: Sequence[str | Path] = ()) -> Access:
        """What was given, checked.

        Args:
            collections: Names of the only ones within reach; empty: all.
            writes: Whether documents and indexes may be changed.
            folders: That may be indexed.

        Raises:
            ConfigurationError: A name can be no collection's, one of the folders is none, or there are folders and
                nothing may be written.
            ValidationError: A name can be no collection's.
        """
        check_parameters(
            strings_errors("collections", list(collections)), strings_errors("folders", [str(one) for one in folders])
        )
        for name in collections:
            Names("semlex", name)
        if folders and not writes:
            raise ConfigurationError(
                "folders are for indexing: allow writes as well (--allow-writes), or leave them out"
            )
        roots = [Path(os.path.realpath(folder)) for folder in folders]
        for given, root in zip(folders, roots, strict=True):
            if not os.path.isdir(root):  # noqa: PTH112 - says False where Path would raise
                raise ConfigurationError(f"allow: there is no folder {str(given)!a}")
        names = frozenset(collections) if collections else None
        return cls(names, "admin" if writes else "read", tuple(dict.fromkeys(roots)))

    def narrowed(self, caller: Caller) -> Access:
        """What somebody with rights of their own may reach of it."""
        both = self.collections if caller.collections is None else caller.collections
        if self.collections is not None and caller.collections is not None:
            both = self.collections & caller.collections
        return Access(both, min(self.rights, caller.rights, key=ORDER.index), self.folders)

    def folder(self, given: str) -> Path:
        """A file or folder that may be indexed, links followed.

        Args:
            given: Absolute, or below one of the folders.

        Raises:
            ConfigurationError: It lies in none of the folders, or is not there; the message does not say which.
        """
        if not self.folders:
            raise ConfigurationError(
                "no folder may be indexed here: whoever starts this server names some with --allow FOLDER"
            )
        named = ", ".join(map(str, self.folders))
        refused = ConfigurationError(f"{given[:200]!a} is nothing below the folders that may be indexed here: {named}")
        if "\0" in given or not given.strip():
            raise refused
        for root in self.folders:
            # An absolute path stays what it is, whatever it is joined to.
            try:
                real = Path(os.path.realpath(root / given))
            except OSError:  # a link that was exchanged meanwhile
                continue
            if real.is_relative_to(root) and os.path.exists(real):  # noqa: PTH110 - False for names that are too long
                return real
        raise refused
