"""What an assistant may reach: which collections, whether it may write, which folders it may have read."""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from semlex.chat.untrusted import visible
from semlex.errors import ConfigurationError
from semlex.operations import OPERATIONS, Rights
from semlex.server.mcp.presentation import in_tools
from semlex.server.tokens import ORDER, Reaching
from semlex.store.schema.names import Names
from semlex.validation import check_parameters, strings_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from semlex.retriever.client import Client
    from semlex.retriever.collection import Collection
    from semlex.server.tokens import Caller


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


SHOWN_NAMES = 20


RIGHTS: dict[str, Rights] = {operation.name: operation.rights for operation in OPERATIONS}


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool.

    Attributes:
        name: As it is called.
        operations: What it does, by the names of `OPERATIONS`; the first one has its arguments.
        title: For people.
        description: For a model: when to use it, and what comes back.
        renamed: Argument of the tool -> that of the operation.
        own: Arguments that the tool has for itself.
        overwrites: Whether it replaces what is stored.
    """

    name: str
    operations: tuple[str, ...]
    title: str
    description: str
    renamed: tuple[tuple[str, str], ...] = ()
    own: tuple[str, ...] = ()
    overwrites: bool = False

    @property
    def reads_only(self) -> bool:
        """Whether it changes nothing."""
        return self.rights == "read"

    @property
    def rights(self) -> Rights:
        """What whoever calls it needs."""
        return max((RIGHTS[name] for name in self.operations), key=ORDER.index)


OFFERS = (
    Offer(
        "search",
        ("search",),
        "Search documents",
        "Find passages in the user's indexed documents, by meaning and by words. Use it first for any question that "
        "those documents may answer. Returns the best passages with text, absolute file path and line to cite, and "
        "scores. A low best_similarity and a low coverage mean that the collection probably holds no answer.",
    ),
    Offer(
        "get_chunk",
        ("get chunks",),
        "Read a passage",
        "Read one passage in full, by the chunk_id of a search hit. Use it where a hit says cut.",
        renamed=(("chunk_id", "ids"),),
        own=("start",),
    ),
    Offer(
        "get_document",
        ("get document",),
        "Read a document",
        "Read a whole document, by its name or path as search shows it; long ones in parts (next_start). Use outline "
        "first for a long one.",
        own=("start",),
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
        "Answer a question from the documents alone, with citations that were looked up, or say why there is no "
        "answer. Use it for a documented answer; use search to read and judge passages yourself.",
    ),
    Offer(
        "why",
        ("why",),
        "Why is a document not found",
        "Explain why a document is where it is in the results for a question, or why it is missing, and what helps. "
        "Use it when a document that should be found is not.",
    ),
    Offer(
        "list_collections",
        ("list collections",),
        "List collections",
        "List the collections of documents with their sizes. Use it when you do not know which collection to ask.",
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
        own=("job_id",),
    ),
    Offer(
        "index_folder",
        ("index", "submit job"),
        "Index a folder",
        "Read a folder or file into a collection, so that search finds it; unchanged files are skipped, changed ones "
        "replaced. Only folders that were allowed. Returns counts and the files that failed; with background=true a "
        "job_id.",
        renamed=(("folder", "paths"),),
        own=("background",),
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
        "Make the keyword index of a collection anew from its stored texts, while it is in use. For a damaged or "
        "outdated index; changes no document.",
    ),
)


def offered(access: Access) -> dict[str, Offer]:
    """The tools that there are for whoever may reach so much, by name."""
    return {offer.name: offer for offer in OFFERS if access.may(offer.rights)}


class Reach:
    """What tools work on."""

    def __init__(
        self,
        client: Client | Callable[[], AbstractContextManager[Client]],
        access: Access,
        default: Callable[[], str] | None = None,
        calibration: Callable[[str], Path | None] = lambda _name: None,
    ) -> None:
        self._lend = client if callable(client) else lambda: nullcontext(client)
        self._access, self._default, self._calibration = access, default, calibration
        self._serving: ContextVar[Client] = ContextVar("serving")
        self._asking: ContextVar[Access] = ContextVar("asking", default=access)
        self._caller: ContextVar[Caller | None] = ContextVar("caller", default=None)
        # Names that are known to be there, of one client.
        self._known: set[str] = set()
        self._known_to: Client | None = None

    @property
    def client(self) -> Client:
        """The client that serves the request."""
        return self._serving.get()

    @property
    def access(self) -> Access:
        """What is within reach of whoever asks at the moment."""
        return self._asking.get()

    @property
    def offered(self) -> dict[str, Offer]:
        """The tools of whoever asks at the moment, by name."""
        return offered(self.access)

    @contextmanager
    def asked_by(self, caller: Caller | None) -> Iterator[None]:
        """Narrows what is within reach, for one request."""
        with self._lend() as client:
            if client is not self._known_to:
                self._known_to = client
                self.forget()
            serving = self._serving.set(client)
            asking = self._asking.set(self._access if caller is None else self._access.narrowed(caller))
            known_as = self._caller.set(caller)
            try:
                yield
            finally:
                self._caller.reset(known_as)
                self._asking.reset(asking)
                self._serving.reset(serving)

    def said(self, message: str) -> str:
        """What the library says, in the words of an assistant."""
        return in_tools(visible(message), self.offered)

    def remedy(self, offer: Offer) -> str:
        """Who can let an assistant call a tool that it may not call, and how."""
        if not self._access.may(offer.rights):
            return "whoever starts this server can add --allow-writes"
        caller = self._caller.get()
        if caller is None or not caller.name:  # everybody has the same rights
            return f"whoever starts this server can add --rights {offer.rights}"
        return (
            f"it needs a token with the right {offer.rights!r}, and this one has {caller.rights!r}; whoever runs this "
            f"server can make one: semlex serve token add NAME --rights {offer.rights} (with the server's --token-file)"
        )

    async def names(self) -> list[str]:
        """The collections that there are, by name."""
        return [listed.name for listed in await self.client.collections() if self.access.sees(listed.name)]

    async def collection(self, name: str | None, *, create: bool = False) -> Collection:
        """A collection by its name; where none is given, the server's own, else the only one."""
        seen = self.access.collections
        if name is None and seen is not None and len(seen) == 1:
            (name,) = seen  # without a look at what there is
        if name is not None and name in self._known and self.access.sees(name):
            return self._opened(name)
        names = await self.names()
        if name is None:
            name = self._meant(names, create=create)
        if name in names:
            self._known.add(name)
            return self._opened(name)
        if not create or not self.access.sees(name):
            raise self.missing(name, names)
        return self._opened(name, create=True)

    def _opened(self, name: str, *, create: bool = False) -> Collection:
        return self.client.collection(name, create=create, calibration=self._calibration(name))

    def _meant(self, names: list[str], *, create: bool) -> str:
        """The collection of whoever names none."""
        default = None if self._default is None else self._default()
        if default in names:
            return default
        if len(names) == 1:
            return names[0]
        if create and default is not None and self.access.sees(default):
            return default
        raise ConfigurationError(f"say which collection: {_listed(names)}")

    def missing(self, name: str, names: list[str]) -> ConfigurationError:
        """The error of a collection that is not there, or is out of reach."""
        return ConfigurationError(f"there is no collection {name[:60]!a} here; {_listed(names)}")

    def forget(self) -> None:
        """Looks anew which collections there are: one that was known is gone."""
        self._known.clear()


def _listed(names: list[str]) -> str:
    if not names:
        return "there are no collections yet: documents have to be indexed first"
    more = len(names) - SHOWN_NAMES
    return f"collections: {', '.join(names[:SHOWN_NAMES])}" + (f" and {more} more" if more > 0 else "")
