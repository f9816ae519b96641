"""The tools in one table: what a model reads to choose one, and what each does in the words of the library."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from semlex.operations import OPERATIONS, Rights
from semlex.server.access.rights import ORDER

if TYPE_CHECKING:
    from semlex.server.mcp.access import Access

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
