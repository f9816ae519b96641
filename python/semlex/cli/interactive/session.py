"""What a line of the shell does: a question is searched, ``:command`` changes how, or looks closer."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, get_args

from rich.markup import escape

from semlex.cli.interactive.editor import open_hit, require_editor
from semlex.cli.options import whole_number_between
from semlex.cli.output import print_json, print_results
from semlex.cli.terminal import inform, one_line, output
from semlex.errors import ConfigurationError
from semlex.filters.text import tree_of_text
from semlex.types.queries import MAX_TOP_K
from semlex.types.results import SearchMode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from semlex.cli.context import Context
    from semlex.retriever.synchronous import SyncRetriever
    from semlex.settings.table import Settings
    from semlex.types.results import SearchResults

MODES: tuple[str, ...] = get_args(SearchMode)
# Command -> what follows it, and what it does.
HELP = {
    "why": ("DOC", "why a document is where it is in the last answer, or why it is missing"),
    "mode": ("vector|keyword|hybrid", "how the next questions are searched; without a word: as is best"),
    "filter": ("EXPR", "a condition such as year >= 2020 for the next questions; without one: none"),
    "open": ("N", "open hit N of the last answer in $EDITOR; without a number: the first"),
    "top": ("N", "number of hits"),
    "collection": ("NAME", "search another collection; without a name: say which there are"),
    "explain": ("", "say, or say no longer, what an answer rests on"),
    "json": ("", "print JSON, or text again"),
    "help": ("", "this list"),
    "quit": ("", "leave, as Ctrl-D does"),
}


@dataclass(slots=True)
class Session:
    """The state of a shell.

    Attributes:
        context: The options of the command.
        settings: What they and the environment say.
        options: Of every search, by the names of `Collection.search`.
        top_k: Number of hits.
        as_json: Whether hits are printed as JSON.
        explain: Whether an answer says what it rests on.
        question: The last one; None before the first.
        results: What it found.
    """

    context: Context
    settings: Settings
    options: dict[str, Any]
    top_k: int
    as_json: bool
    explain: bool = False
    question: str | None = None
    results: SearchResults | None = None
    _opened: ExitStack = field(default_factory=ExitStack)
    _retriever: SyncRetriever | None = None
    _fields: list[str] | None = None

    @property
    def retriever(self) -> SyncRetriever:
        """The open collection."""
        if self._retriever is None:
            raise ConfigurationError("the shell has no open collection: :collection NAME opens one")
        return self._retriever

    @property
    def collection(self) -> str:
        """Name of the open collection."""
        return self.retriever.asynchronous.names.collection

    def open(self, settings: Settings) -> None:
        """Opens a collection, and closes the one before when that has worked."""
        stack = ExitStack()
        self._retriever = stack.enter_context(self.context.opened(settings, searches=True))
        self._opened.close()
        self._opened, self.settings, self._fields = stack, settings, None
        self.question, self.results = None, None

    def close(self) -> None:
        """Closes the collection."""
        self._opened.close()

    def run(self, line: str) -> bool:
        """Runs a line.

        Returns:
            Whether the shell goes on.

        Raises:
            SemlexError: What was wrong; the shell goes on.
        """
        text = line.strip()
        if not text.startswith(":"):
            if text:
                self._ask(text)
            return True
        word, _, rest = text[1:].partition(" ")
        if word == "quit":
            return False
        command = self._commands().get(word)
        if command is None:
            near = get_close_matches(word, HELP, n=1, cutoff=0.4)
            meant = f": did you mean :{near[0]}?" if near else ": :help lists the commands"
            raise ConfigurationError(f"there is no command :{one_line(word)}{meant}")
        command(rest.strip())
        return True

    def candidates(self, line: str) -> Sequence[str]:
        """What may stand in place of the last word of a line."""
        word, space, _ = line.partition(" ")
        if not space:
            return [f":{name}" for name in HELP]
        if word == ":mode":
            return MODES
        if word == ":filter":
            if self._fields is None:
                self._fields = [field.name for field in self.retriever.fields()]
            return self._fields
        return self.context.collection_names(self.settings) if word == ":collection" else []

    def _commands(self) -> dict[str, Callable[[str], None]]:
        return {
            "why": self._why,
            "mode": self._mode,
            "filter": self._filter,
            "open": self._open,
            "top": self._top,
            "collection": self._collection,
            "explain": self._explain,
            "json": self._json,
            "help": self._help,
        }

    def _ask(self, question: str) -> None:
        self.results = self.retriever.search(question, self.top_k, explain=self.explain, **self.options)
        self.question = question
        print_results(self.results, as_json=self.as_json)
        if self.results.explanation is not None and not self.as_json:
            output.print(escape(str(self.results.explanation)))

    def _why(self, document: str) -> None:
        if self.question is None:
            raise ConfigurationError(":why is about the last question: ask one first")
        if not document:
            raise ConfigurationError(":why takes a document: :why keys.md")
        told = self.retriever.why(document, self.question, self.top_k, **self.options)
        if self.as_json:
            print_json(told.to_dict())
        else:
            output.print(escape(str(told)))

    def _mode(self, mode: str) -> None:
        if mode and mode not in MODES:
            raise ConfigurationError(f":mode takes {', '.join(MODES)}; got {mode!a}")
        self.options["mode"] = mode or None
        inform(f"mode: {mode or 'as is best'}")

    def _filter(self, expression: str) -> None:
        self.options["filters"] = tree_of_text(expression, ":filter") if expression else None
        inform(f"filter: {escape(one_line(expression)) or 'none'}")

    def _open(self, number: str) -> None:
        if self.results is None:
            raise ConfigurationError(":open is about the last answer: ask a question first")
        require_editor()
        open_hit(self.results, hits_wanted(number or "1", ":open"))

    def _top(self, number: str) -> None:
        self.top_k = hits_wanted(number, ":top")
        inform(f"hits: {self.top_k:,}")

    def _collection(self, name: str) -> None:
        if not name:
            for one in self.context.collection_names(self.settings):
                output.print(escape(one_line(one)))
            return
        self.open(self.context.settings(collection=name))
        inform(f"collection: {escape(self.collection)}")

    def _explain(self, _: str) -> None:
        self.explain = not self.explain
        inform(f"explain: {'on' if self.explain else 'off'}")

    def _json(self, _: str) -> None:
        self.as_json = not self.as_json
        inform(f"output: {'JSON' if self.as_json else 'text'}")

    def _help(self, _: str) -> None:
        output.print("A line is a question, searched at once. Commands:")
        for name, (follows, what) in HELP.items():
            output.print(escape(f"  {f':{name} {follows}':30} {what}"))


def hits_wanted(number: str | int, where: str) -> int:
    """A number of hits, or of one.

    Args:
        number: As it was typed.
        where: Command or option that it was typed behind.

    Raises:
        ConfigurationError: It is none.
    """
    import typer

    try:
        return whole_number_between(1, MAX_TOP_K)(number)
    except typer.BadParameter as error:
        raise ConfigurationError(f"{where} {error.message}") from None
