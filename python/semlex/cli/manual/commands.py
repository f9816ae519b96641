"""The commands by name: where each is, and what it does; one is loaded when it is used."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from semlex.cli.manual.panels import EXAMPLES, PANELS
from semlex.cli.manual.questions import QuestionCommand
from semlex.cli.options import folded


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command is.

    Attributes:
        name: Module below ``semlex.cli`` and the function in it, or the group.
        summary: What it does: the first paragraph of its help, so that the list of commands loads none of them.
        is_question: Whether its arguments are a question.
    """

    name: str
    summary: str
    is_question: bool = False


PLACES = {
    "try": Place(
        "commands.search:try_folder",
        "Index a folder into a collection of its own and ask it a question.",
        is_question=True,
    ),
    "search": Place(
        "commands.search:search",
        "Search a collection; prints location, scores of each leg, and an excerpt of every hit.",
        is_question=True,
    ),
    "ask": Place(
        "commands.ask:ask",
        "Answer a question from a collection, with citations that were looked up.",
        is_question=True,
    ),
    "context": Place(
        "commands.answers:context",
        "Print the passages that fit a question best, as numbered text for a prompt.",
        is_question=True,
    ),
    "why": Place(
        "commands.why:why",
        "Say why a document is where it is in the answer to a question, or why it is missing, and what helps.",
        is_question=True,
    ),
    "facets": Place(
        "commands.search:facets",
        "Count which values fields have, over all chunks that pass a filter, or over the candidates of a query.",
    ),
    "shell": Place(
        "interactive.shell:shell",
        "Ask one question after another, while server and model stay open: an answer takes milliseconds.",
    ),
    "index": Place("commands.index:index", "Read files and folders, cut them, and store their chunks."),
    "sync": Place("commands.sync:sync", "Make a collection hold what files and folders hold."),
    "add": Place(
        "commands.documents.add:add",
        'Add documents, each as one chunk: lines of JSON such as {"content": "…", "id": "a", "metadata": '
        '{"year": 2024}}.',
    ),
    "chunks": Place(
        "commands.index:chunks",
        "Show what files become when they are indexed; nothing is written, and no server is asked.",
    ),
    "documents": Place(
        "commands.sync:documents",
        "List the documents that were read from files, whether these have changed, and what the last run "
        "could not read.",
    ),
    "show": Place(
        "commands.documents.reading:show",
        "Print the text of a chunk, of a document, or of what stands at a line of one.",
    ),
    "outline": Place(
        "commands.documents.reading:outline",
        "Print the headings of a document in their order, each with its line.",
    ),
    "sources": Place("commands.sources:sources_app", "Show and move the folders that documents were read from."),
    "delete": Place(
        "commands.whole_collection.maintenance:delete",
        "Delete documents or chunks with their vectors; the options that are given must all hold.",
    ),
    "import": Place(
        "commands.whole_collection.importing:import_rows",
        "Load rows that bring their vectors: from files, or from tables of LangChain, LlamaIndex or Haystack.",
    ),
    "enrich": Place(
        "commands.whole_collection.enrich:enrich",
        "Let a language model write a line about each chunk that has none, to find it by.",
    ),
    "collections": Place(
        "commands.collections:collections",
        "List the collections with their documents, chunks, model and language.",
    ),
    "status": Place("commands.collections:status", "Show a collection's figures: counts, model, server, the last run."),
    "fields": Place(
        "commands.fields:fields_app",
        "Show the fields of a collection's metadata, and index those that filters compare.",
    ),
    "checkup": Place(
        "commands.diagnosis.checkup:checkup",
        "Say how well a collection can be searched, without judged questions: its own headings are asked.",
    ),
    "queries": Place(
        "commands.whole_collection.queries:queries",
        "Show the questions that were asked: the most frequent ones, and those that found nothing.",
    ),
    "eval": Place(
        "commands.evaluate:evaluation_app",
        "Measure the search with judged queries: `semlex eval DIR`; choose the fusion's weight: `semlex "
        "eval tune DIR`; learn which similarity means relevant: `semlex eval calibrate DIR`. `semlex "
        "eval run --help` has the options.",
    ),
    "optimize": Place(
        "commands.whole_collection.maintenance:optimize",
        "Merge a collection's keyword index to few, full segments; worth its time after a large load.",
    ),
    "create-index": Place(
        "commands.whole_collection.create_index:create_index",
        "Build the indexes of a collection, or another kind of vector index.",
    ),
    "reindex": Place(
        "commands.whole_collection.maintenance:reindex",
        "Rebuild an index from the stored texts, while the collection is searched and written.",
    ),
    "rechunk": Place(
        "commands.whole_collection.maintenance:rechunk",
        "Cut documents again from their files: those that an older version cut, or all of them with other settings.",
    ),
    "dump": Place(
        "commands.whole_collection.transfer:dump",
        "Write a collection with its vectors into a folder of Parquet files.",
    ),
    "restore": Place(
        "commands.whole_collection.transfer:restore",
        "Make a collection from a dump: as a whole, or not at all.",
    ),
    "migrate": Place(
        "commands.collections:migrate",
        "Bring the tables of all collections to the form that this version uses; opening one does that as well.",
    ),
    "drop": Place("commands.collections:drop", "Drop a collection with everything in it."),
    "embed": Place(
        "commands.index:embed",
        "Compute the vectors of chunks that have none, without reading the files again.",
    ),
    "reembed": Place(
        "commands.whole_collection.embeddings:reembed",
        "Change the embedding model of a collection, while it is searched and written.",
    ),
    "embeddings": Place(
        "commands.whole_collection.embeddings:embeddings",
        "List the sets of vectors of a collection: their models, which of them serves, and what they lack.",
    ),
    "models": Place("commands.models:models_app", "Models on this machine."),
    "mcp": Place(
        "commands.assistants.mcp:mcp",
        "Give an assistant your documents: it searches, reads and cites them by the Model Context Protocol.",
    ),
    "ui": Place(
        "commands.serving.page:ui",
        "Serve the page on which searches are seen, explained and judged, and open it in a browser.",
    ),
    "serve": Place("commands.serving.serve:serve_app", "Serve search, documents and jobs over HTTP."),
    "submit": Place("commands.background.jobs:submit", "Leave work on a collection to a worker; prints the job's id."),
    "worker": Place(
        "commands.background.worker:worker",
        "Do the jobs of all collections, one after another, until it is stopped; start as many as you like.",
    ),
    "jobs": Place("commands.background.jobs:jobs_app", "Show, cancel and retry jobs, which `semlex worker` does."),
    "doctor": Place(
        "commands.doctor:doctor_app",
        "Show what is wrong with models, server and collections, and what helps.",
    ),
    "config": Place(
        "commands.config:config_app",
        "All settings and where they come from; settings files, and the folders that you trust.",
    ),
    "postgres": Place("commands.postgres:postgres_app", "The embedded Postgres of this machine."),
}


class Commands(MutableMapping[str, Any]):
    """The commands of semlex by name, in the order of their panels; each is loaded when it is taken out."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}
        self._names = [name for names in PANELS.values() for name in names if " " not in name]

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _loaded(name, PLACES[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def summary_of(name: str) -> TyperCommand | None:
    """A command that stands for another in a list of commands: its name, its panel, its summary."""
    place = PLACES.get(name)
    return None if place is None else TyperCommand(name, help=place.summary, rich_help_panel=_panel_of(name))


def _panel_of(name: str) -> str | None:
    return next((panel for panel, names in PANELS.items() if name in names), None)


def described(command: Any, name: str) -> Any:
    """A command with its panel, its paragraphs as wide as the terminal, flags without a value, and its example."""
    command.rich_help_panel = next(
        (panel for panel, names in PANELS.items() if name in names and " " not in name), None
    )
    command.help = command.help and folded(command.help)
    without_values(command)
    if name in EXAMPLES:
        example = f"\b\nExample:\n    {EXAMPLES[name]}"
        command.epilog = example if command.epilog is None else f"{command.epilog}\n\n{example}"
    for word, below in getattr(command, "commands", {}).items():
        described(below, f"{name} {word}")
    return command


def without_values(command: Any) -> None:
    """Lets the help of a command show no kind of value behind options that take none."""
    all_of = command.get_params  # `--help` is made there

    def get_params(ctx: Any) -> list[Any]:
        parameters: list[Any] = all_of(ctx)
        for parameter in parameters:
            if getattr(parameter, "is_flag", False):
                parameter.metavar = ""
        return parameters

    command.get_params = get_params


def _loaded(name: str, place: Place) -> Any:
    module, _, attribute = place.name.partition(":")
    found = getattr(import_module(f"semlex.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
        command.name = name
    else:
        alone = typer.Typer(add_completion=False)
        alone.command(name, cls=QuestionCommand if place.is_question else TyperCommand)(found)
        command = typer.main.get_command(alone)
    return described(command, name)
