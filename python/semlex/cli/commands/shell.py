"""``semlex shell``: asks questions one after another, with server and model kept open."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Self, get_args

import typer
from rich.markup import escape

from semlex.cli.context import READER, Context, with_context
from semlex.cli.editor import open_hit, require_editor
from semlex.cli.exit_codes import exit_code
from semlex.cli.options import Flags, whole_number_between
from semlex.cli.output import print_json, print_results
from semlex.cli.terminal import inform, is_interactive, messages, one_line, output
from semlex.errors import ConfigurationError, SemlexError
from semlex.types.queries import MAX_TOP_K

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from semlex.retriever.synchronous import SyncRetriever
    from semlex.settings.table import Settings
    from semlex.types.results import SearchResults


MAX_HISTORY = 1_000


def lines(prompt: Callable[[], str]) -> Iterator[str | bytes]:
    """Yield the lines of standard input until it ends; Ctrl-C at the prompt begins a new line."""
    # Lines of a pipe are bytes, so that one that is not text does not end the others.
    if not is_interactive():
        # Not from the stream itself: leaving these lines early would close it.
        yield from () if sys.stdin is None else iter(sys.stdin.buffer.readline, b"")
        return
    while True:
        try:
            yield input(prompt())
        except KeyboardInterrupt:
            messages.print()
        except EOFError:
            messages.print()
            return


class History:
    """The lines typed in earlier shells, in a file that only its owner can read; and completion by Tab."""

    def __init__(self, file: Path | None, candidates: Callable[[str], Sequence[str]]) -> None:
        self._file = file  # None: no lines are kept
        self._candidates = candidates  # returns completions of the last word of a line
        self._readline: Any = None
        self._begun = 0
        self._found: list[str] = []

    def __enter__(self) -> Self:
        if is_interactive():
            try:
                import readline
            except ImportError:  # Python without it, as on Windows: lines are read without it
                return self
            self._readline = readline
            for line in self._stored():
                readline.add_history(line)
            self._begun = readline.get_current_history_length()
            readline.set_completer(self.complete)
            readline.set_completer_delims(" ")
            with_libedit = "libedit" in (readline.__doc__ or "")
            readline.parse_and_bind("bind ^I rl_complete" if with_libedit else "tab: complete")
        return self

    def __exit__(self, *_: object) -> None:
        if self._readline is None:
            return
        end = self._readline.get_current_history_length()
        new = [self._readline.get_history_item(number) for number in range(self._begun + 1, end + 1)]
        self._readline.set_completer(None)
        if self._file is not None and new:
            write_history(self._file, [*self._stored(), *filter(None, new)])

    def complete(self, word: str, state: int) -> str | None:
        """Return the completion with the number `state`; readline asks for one after another."""
        if state == 0:
            line = self._readline.get_line_buffer() if self._readline is not None else word
            try:
                found = [one for one in self._candidates(line) if one.startswith(word)]
                self._found = [f"{found[0]} "] if len(found) == 1 else found
            except Exception:  # noqa: BLE001 - errors would break the input line; the command itself reports them
                self._found = []
        return self._found[state] if state < len(self._found) else None

    def _stored(self) -> list[str]:
        if self._file is None:
            return []
        try:
            return self._file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []


def write_history(file: Path, found: Sequence[str]) -> None:
    """Write the last lines into a file of mode 0600, atomically; print a note if that fails."""
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    text = "".join(f"{one_line(line)}\n" for line in found[-MAX_HISTORY:])
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as target:
            target.write(text)
        beside.replace(file)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        told = f"note: the history was not stored: {one_line(str(file))}: {error.strerror}; --no-history turns it off"
        messages.print(told, markup=False)


# Command -> what follows it, and what it does. Each but `quit` is a method of `Session` with a leading underscore.
HELP = {
    "why": ("DOC", "why a document is where it is in the last results, or why it is missing"),
    "mode": ("vector|keyword|hybrid", "mode of the next queries; no argument: choose automatically"),
    "filter": ("EXPR", "filter of the next questions, such as year >= 2020; without one: no filter"),
    "open": ("N", "open hit N of the last results in $EDITOR; without a number: the first"),
    "top": ("N", "number of hits"),
    "collection": ("NAME", "search another collection; without a name: list the collections"),
    "explain": ("", "show how the hits were found: on, or off again"),
    "json": ("", "print hits as JSON, or as text again"),
    "help": ("", "this list"),
    "quit": ("", "leave, as Ctrl-D does"),
}


@dataclass(slots=True)
class Session:
    """The state of a shell."""

    context: Context  # the options of the command
    settings: Settings  # from these options, the environment and files
    options: dict[str, Any]  # of every search, by the names of `Collection.search`
    top_k: int  # number of hits
    as_json: bool  # whether hits are printed as JSON
    explain: bool = False  # whether results include how they were found
    question: str | None = None  # the last one; None before the first
    results: SearchResults | None = None  # of the last question
    _opened: ExitStack = field(default_factory=ExitStack)
    _retriever: SyncRetriever | None = None
    _fields: list[str] | None = None

    @property
    def retriever(self) -> SyncRetriever:
        """The retriever of the open collection."""
        if self._retriever is None:
            raise ConfigurationError("the shell has no open collection: :collection NAME opens one")
        return self._retriever

    @property
    def collection(self) -> str:
        """Name of the open collection."""
        return self.retriever.asynchronous.names.collection

    def open(self, settings: Settings) -> None:
        """Open a collection, then close the previous one."""
        stack = ExitStack()
        self._retriever = stack.enter_context(self.context.opened(settings, searches=True))
        self._opened.close()
        self._opened, self.settings, self._fields = stack, settings, None
        self.question, self.results = None, None

    def close(self) -> None:
        """Close the collection."""
        self._opened.close()

    def run(self, line: str) -> bool:
        """Run a question or a command; return whether the shell continues."""
        text = line.strip()
        if not text.startswith(":"):
            if text:
                self._ask(text)
            return True
        word, _, rest = text[1:].partition(" ")
        if word == "quit":
            return False
        if word not in HELP:
            near = get_close_matches(word, HELP, n=1, cutoff=0.4)
            meant = f": did you mean :{near[0]}?" if near else ": :help lists the commands"
            raise ConfigurationError(f"unknown command :{one_line(word)}{meant}")
        getattr(self, f"_{word}")(rest.strip())
        return True

    def candidates(self, line: str) -> Sequence[str]:
        """Return completions of the last word of a line."""
        word, space, _ = line.partition(" ")
        if not space:
            return [f":{name}" for name in HELP]
        if word == ":mode":
            return modes()
        if word == ":filter":
            if self._fields is None:
                self._fields = [field.name for field in self.retriever.fields.list()]
            return self._fields
        return self.context.collection_names(self.settings) if word == ":collection" else []

    def _ask(self, question: str) -> None:
        self.results = self.retriever.search(question, self.top_k, explain=self.explain, **self.options)
        self.question = question
        print_results(self.results, as_json=self.as_json)
        if self.results.explanation is not None and not self.as_json:
            output.print(escape(str(self.results.explanation)))

    def _why(self, document: str) -> None:
        if self.question is None:
            raise ConfigurationError(":why explains the last question: ask one first")
        if not document:
            raise ConfigurationError(":why takes a document: :why keys.md")
        told = self.retriever.why(document, self.question, self.top_k, **self.options)
        if self.as_json:
            print_json(told.to_dict())
        else:
            output.print(escape(str(told)))

    def _mode(self, mode: str) -> None:
        if mode and mode not in modes():
            raise ConfigurationError(f":mode takes {', '.join(modes())}; got {mode!a}")
        self.options["mode"] = mode or None
        inform(f"mode: {mode or 'chosen automatically'}")

    def _filter(self, expression: str) -> None:
        from semlex.filters.text import tree_of_text

        self.options["filters"] = tree_of_text(expression, ":filter") if expression else None
        inform(f"filter: {escape(one_line(expression)) or 'none'}")

    def _open(self, number: str) -> None:
        if self.results is None:
            raise ConfigurationError(":open opens a hit of the last question: ask one first")
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
        output.print("A line is a question, which is searched immediately. Commands:")
        for name, (follows, what) in HELP.items():
            output.print(escape(f"  {f':{name} {follows}':30} {what}"))


def modes() -> tuple[str, ...]:
    """Return the search modes."""
    from semlex.types.results import SearchMode

    return get_args(SearchMode)


def hits_wanted(number: str | int, where: str) -> int:
    """Read a number of hits, or the number of a hit; an error message begins with `where`, the command or option."""
    try:
        return whole_number_between(1, MAX_TOP_K)(number)
    except typer.BadParameter as error:
        raise ConfigurationError(f"{where} {error.message}") from None


@with_context("collection", ..., *READER, "embedding_model", "device", "calibration", "reranker_model", "chat_model")
def shell(
    context: Context,
    *,
    options: Annotated[
        dict[str, Any],
        Flags("options.search:SearchArguments", only=("top_k", "mode", "filters", "boost", "route", "rewrite")),
    ],
    no_history: Annotated[bool, typer.Option("--no-history", help="Do not load or save the history of lines.")] = False,
) -> None:
    """Ask one question after another; server and model stay open, so answers take milliseconds.

    A line is a question. A line that begins with a colon is a command; :help lists them. Ctrl-C ends a question that
    takes too long, Ctrl-D the shell. Lines from a pipe are answered without a prompt; the exit code is that of the last
    error.
    """
    settings = context.settings()
    top_k = options.pop("top_k", None)
    wanted = settings.top_k if top_k is None else hits_wanted(top_k, "--top-k")
    session = Session(context, settings, options, wanted, context.as_json)
    try:
        session.open(settings)
        if is_interactive():
            inform("[dim]a line is a question; :help lists commands; Ctrl-D ends[/dim]")
        with History(None if no_history else _history_file(settings), session.candidates):
            code = _answer_all(session)
    finally:
        session.close()
    if code and not is_interactive():
        raise typer.Exit(code)


def _answer_all(session: Session) -> int:
    """Answer line by line; return the exit code of the last error."""
    code = 0
    for line in lines(lambda: f"{session.collection}> "):
        try:
            if not session.run(line if isinstance(line, str) else _decoded(line)):
                break
        except SemlexError as error:
            messages.print(f"[red]error:[/red] {escape(str(error))}")
            code = exit_code(error)
        except KeyboardInterrupt:
            if not is_interactive():
                raise
            messages.print("cancelled")
    return code


def _decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        raise ConfigurationError("the line is not text in UTF-8") from None


def _history_file(settings: Settings) -> Path | None:
    """Return the path of the history file, in the folder of semlex's data on this machine; None without a folder."""
    from semlex.store.postgres.embedded.folder import default_folder

    with suppress(ConfigurationError):  # a user without a home folder needs none for a server elsewhere
        return (settings.data_dir or default_folder().parent) / "shell_history"
    return None
