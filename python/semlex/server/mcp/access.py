"""What an assistant has access to: tools, collections, rights, folders."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from semlex.chat import visible
from semlex.errors import ConfigurationError
from semlex.options.declare import Rights
from semlex.retriever.operations import OPERATIONS
from semlex.server.mcp.presentation import in_tools
from semlex.server.open_client import OpenClient
from semlex.server.tokens import ORDER, Caller, Reaching
from semlex.store.schema.names import Names
from semlex.validation import check_parameters, strings_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from semlex.retriever.client import Client
    from semlex.retriever.collection import Collection


@dataclass(frozen=True, slots=True)
class Access(Reaching):
    """The accessible collections and folders, and the rights to them; by default every collection, for reading."""

    collections: frozenset[str] | None = None
    rights: Rights = "read"
    folders: tuple[Path, ...] = ()

    @classmethod
    def of(cls, collections: Sequence[str] = (), *, writes: bool = False, folders: Sequence[str | Path] = ()) -> Access:
        """Return the access to some collections and folders, after checking their names.

        Args:
            collections: Names of the only accessible collections. Default: all.
            writes: Whether documents and indexes may be changed.
            folders: Folders that may be indexed, if writes are allowed.

        Raises:
            ConfigurationError: A name is invalid, a folder is missing, or folders are given without writes.
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
            if not os.path.isdir(root):  # noqa: PTH112 - False if Path would raise
                raise ConfigurationError(f"allow: {str(given)!a} is not an existing folder")
        names = frozenset(collections) if collections else None
        return cls(names, "admin" if writes else "read", tuple(dict.fromkeys(roots)))

    def narrowed(self, caller: Caller) -> Access:
        """Return the part of this access that a caller also has."""
        limits = [one for one in (self.collections, caller.collections) if one is not None]
        both = frozenset.intersection(*limits) if limits else None
        return Access(both, min(self.rights, caller.rights, key=ORDER.index), self.folders)

    def folder(self, given: str) -> Path:
        """Return the real path of a file or folder that may be indexed; a relative path is below an allowed folder."""
        if not self.folders:
            raise ConfigurationError(
                "no folder may be indexed here: start this server with --allow FOLDER to permit some"
            )
        named = ", ".join(map(str, self.folders))
        # One message for paths outside of the allowed folders and for missing ones, so that it does not reveal which.
        refused = ConfigurationError(f"{given[:200]!a} is not in the folders that may be indexed here: {named}")
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


SHOWN_NAMES = 20


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool with its name, its description and the operations that it stands for."""

    name: str
    operations: tuple[str, ...]  # the first one has its arguments
    title: str
    description: str
    overwrites: bool = False

    @property
    def reads_only(self) -> bool:
        """Whether the tool changes nothing."""
        return self.rights == "read"

    @property
    def rights(self) -> Rights:
        """The right that a caller of the tool needs."""
        return max((OPERATIONS[name].rights for name in self.operations), key=ORDER.index)


OFFERS = (
    Offer(
        "search",
        ("search",),
        "Search documents",
        "Find passages in the user's indexed documents. Use it first for any question that they may answer. Give the "
        "question as query, and always terms, which decide what is found. Returns text, absolute file path and line to "
        'cite, and scores. If the result says "probably not in here", or no passage answers, try once more with other '
        "terms.",
    ),
    Offer(
        "get_chunk",
        ("get chunks",),
        "Read a passage",
        "Read one passage in full, by the chunk_id of a search hit. Use it if a hit is cut.",
    ),
    Offer(
        "get_document",
        ("get document",),
        "Read a document",
        "Read a whole document; long ones in parts (next_start). Use outline first for a long one.",
    ),
    Offer(
        "outline",
        ("outline",),
        "Headings of a document",
        "List the headings of a document with their lines and chunk_ids, to see what it covers and what to read.",
    ),
    Offer(
        "answer_research_question",
        ("answer",),
        "Answer with citations",
        "Answer a question from the documents alone, with citations checked against them, or say why that is not "
        "possible. Use search to judge passages yourself.",
    ),
    Offer(
        "why",
        ("why",),
        "Why is a document not found",
        "Explain why a document that search should find is missing or ranked low, and what helps.",
    ),
    Offer(
        "list_collections",
        ("list collections",),
        "List collections",
        "List the collections with what is in them and their sizes. Use it when you do not know which one to ask.",
    ),
    Offer(
        "collection_stats",
        ("status",),
        "Figures of a collection",
        "Figures of a collection: documents, chunks, model, language, when files were read last, what is damaged.",
    ),
    Offer(
        "list_fields",
        ("list fields",),
        "Fields for filters",
        "List the metadata fields that filters can name, with their types and, on request, their frequent values. Use "
        "it before you write a filter.",
    ),
    Offer(
        "job_status",
        ("list jobs", "get job"),
        "Status of jobs",
        "Tell how far a background job has come, or list the newest jobs.",
    ),
    Offer(
        "index_folder",
        ("index", "submit job"),
        "Index a folder",
        "Read a folder or file into a collection, so that search finds it; unchanged files are skipped, changed ones "
        "replaced. Only folders that were allowed. Returns counts and the files that failed; with background=true a "
        "job_id.",
        overwrites=True,
    ),
    Offer(
        "optimize_search",
        ("optimize",),
        "Optimise a collection",
        "Merge the keyword index of a collection, so that searches are faster after many changes. Changes no document.",
    ),
    Offer(
        "reindex_collection",
        ("reindex",),
        "Rebuild the keyword index",
        "Rebuild the keyword index of a collection from its stored texts, while it is in use. For a damaged or "
        "outdated index; changes no document.",
    ),
)


class CollectionAccess:
    """Access to the collections of the current client that the request's caller may use."""

    def __init__(
        self, client: Client | OpenClient | Callable[[], AbstractContextManager[OpenClient]], access: Access
    ) -> None:
        if callable(client):
            self._lend = client
        else:
            opened = client if isinstance(client, OpenClient) else OpenClient(client)
            self._lend = lambda: nullcontext(opened)
        self._widest = access
        self._serving: ContextVar[OpenClient] = ContextVar("serving")
        self._access: ContextVar[Access] = ContextVar("access", default=access)
        self._caller: ContextVar[Caller | None] = ContextVar("caller", default=None)

    @property
    def client(self) -> Client:
        """The client that serves the current request."""
        return self._serving.get().client

    @property
    def access(self) -> Access:
        """The access of the current request's caller."""
        return self._access.get()

    @property
    def offered(self) -> dict[str, Offer]:
        """The tools that the current caller may call, by name."""
        return {offer.name: offer for offer in OFFERS if self.access.may(offer.rights)}

    @contextmanager
    def as_caller(self, caller: Caller | None) -> Iterator[None]:
        """Limit access to what a caller may use, for one request."""
        with self._lend() as opened:
            serving = self._serving.set(opened)
            access = self._access.set(self._widest if caller is None else self._widest.narrowed(caller))
            known = self._caller.set(caller)
            try:
                yield
            finally:
                self._caller.reset(known)
                self._access.reset(access)
                self._serving.reset(serving)

    def for_assistant(self, message: str) -> str:
        """Return a library message with commands replaced by the names of tools."""
        return in_tools(visible(message), self.offered)

    def remedy(self, offer: Offer) -> str:
        """Return who can let an assistant call a tool that it may not call, and how."""
        if not self._widest.may(offer.rights):
            return "the operator of this server can start it with --allow-writes"
        caller = self._caller.get()
        if caller is None or not caller.name:  # all callers have the same rights
            return f"the operator of this server can start it with --rights {offer.rights}"
        return (
            f"it needs a token with the right {offer.rights!r}; yours has the right {caller.rights!r}. The server's "
            f"operator can make one: semlex serve token add NAME --rights {offer.rights} "
            "(with the server's --token-file)"
        )

    async def collection(self, name: str | None, *, create: bool = False) -> Collection:
        """Open a collection by its name; without a name, the server's default, or the only one."""
        opened, seen = self._serving.get(), self.access.collections
        if name is None and seen is not None and len(seen) == 1:
            (name,) = seen  # without a query
        if name is not None and self.access.sees(name) and (known := opened.known(name)) is not None:
            return known
        names = [one for one in await opened.names() if self.access.sees(one)]
        if name is None:
            name = self._meant(names, create=create)
        if name not in names and not (create and self.access.sees(name)):
            raise ConfigurationError(f"collection {name[:60]!a} does not exist here; {_listed(names)}")
        return await opened.collection(name, create=create)

    def _meant(self, names: list[str], *, create: bool) -> str:
        default = self._serving.get().default
        if default is not None and (default in names or (create and len(names) != 1 and self.access.sees(default))):
            return default
        if len(names) == 1:
            return names[0]
        raise ConfigurationError(f"name a collection; {_listed(names)}" if names else _listed(names))

    def forget(self) -> None:
        """Forget the known collections, because one of them no longer exists."""
        self._serving.get().forget()


def _listed(names: list[str]) -> str:
    if not names:
        return "no collections exist yet: index documents first"
    more = len(names) - SHOWN_NAMES
    return f"collections: {', '.join(names[:SHOWN_NAMES])}" + (f" and {more} more" if more > 0 else "")
