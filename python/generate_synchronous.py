"""Writes `semlex/retriever/synchronous.py`: the synchronous twins of client, collection and retriever.

Every method gets the signature, types and docstring of the asynchronous one. Run it after a change of those:
``./x synchronous``; a test compares.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

RETRIEVER = Path(__file__).parent / "semlex" / "retriever"
TARGET = RETRIEVER / "synchronous.py"
PARTS = (
    "reads",
    "answers",
    "asking",
    "checking",
    "queries",
    "explaining",
    "fields",
    "enriching",
    "folders",
    "tables",
    "embeddings",
    "submission",
    "upkeep",
)
SOURCES = ("collection", *PARTS, "client", "postgres", "knowledge_base")
# What belongs to an event loop of its own, and what the twin has by hand.
LEFT_OUT = {"using", "open", "initialize", "close", "collection", "of", "hits_into"}
LOOP_BOUND = ("pool", "connection")
# What has methods of its own, and becomes something else with them.
WRAPPED = {"Job": "SyncJob.of({}, self._runner)", "list[Job]": "[SyncJob.of(job, self._runner) for job in {}]"}

HEADER = '''"""Client, collection, retriever, knowledge base without an event loop: the same methods, without ``await``.

Made by ``./x synchronous`` from the asynchronous classes: change those.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Self, TypeVar

from semlex.retriever.loop_thread import LoopRunner
from semlex.store.query.hits import Relation, fill_table_sync
from semlex.types.reports import JobInfo
{imports}

if TYPE_CHECKING:
    from psycopg import Connection
{type_imports}

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SyncJob(JobInfo):
    """A job as it was when it was read. It is a value: its methods give the job as it is then."""

    _job: Job = field(repr=False, compare=False, kw_only=True)
    _runner: LoopRunner = field(repr=False, compare=False, kw_only=True)

    @classmethod
    def of(cls, job: Job, runner: LoopRunner) -> Self:
        """The same job without ``await``."""
        return cls(**job.values(), _job=job, _runner=runner)

{job}

class SyncCollection:
    """`Collection` behind plain functions, callable from any thread; `SyncClient.collection` makes one."""

    def __init__(self, collection: Collection, runner: LoopRunner) -> None:
        self._collection = collection
        self._runner = runner

    @property
    def collection(self) -> Collection:
        """The asynchronous collection behind this one."""
        return self._collection

    def using(self, connection: CallersConnection) -> SyncCollection:
{using_docstring}
        return SyncCollection(self._collection.using(connection), self._runner)

    def hits_into(
        self,
        connection: Connection[Any],
        results: Sequence[SearchResult],
        table: str,
        *,
        include: Sequence[Included] = (),
    ) -> int:
{hits_into_docstring}
        return fill_table_sync(connection, Relation(results, include), table)

    async def awaited(
        self, method: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Calls a method of `collection` from an event loop of yours, which goes on meanwhile.

        The call itself runs on the loop of this object, so that sync and async callers can share it.

        Raises:
            WorkAbandonedError: It was closed meanwhile.
        """
        return await self._runner.awaited(method, *arguments, **options)

{collection}

class SyncClient:
    """`Client` behind plain functions, callable from any thread.

    It owns one event loop in one thread; the methods hand their work to it and wait. Inside a running event loop use
    `Client` itself: waiting here would block that loop. `close` ends the calls of other threads with a
    `WorkAbandonedError`. A forked child opens everything anew at its first call.

{client_arguments}
    """

    def __init__({client_signature}) -> None:
        self._client = Client({client_call})
        self._runner = LoopRunner(self._client)

    @property
    def client(self) -> Client:
        """The asynchronous client behind this one."""
        return self._client

    def collection({collection_signature}) -> SyncCollection:
{collection_docstring}
        return SyncCollection(self._client.collection({collection_call}), self._runner)

{client}{lifecycle}

class SyncRetriever(SyncCollection):
    """`PostgreSQLRetriever` behind plain functions, callable from any thread.

    It owns one event loop in one thread; the methods hand their work to it and wait. Inside a running event loop use
    `PostgreSQLRetriever` itself: waiting here would block that loop. `close` ends the calls of other threads with a
    `WorkAbandonedError`. A forked child opens everything anew at its first call.

{retriever_arguments}
    """

    def __init__({retriever_signature}) -> None:
        self._retriever = PostgreSQLRetriever({retriever_call})
        super().__init__(self._retriever, LoopRunner(self._retriever))

    @property
    def retriever(self) -> PostgreSQLRetriever:
        """The asynchronous retriever behind this one."""
        return self._retriever

{retriever}{lifecycle}

class SyncKnowledgeBase:
    """`KnowledgeBase` behind plain functions, callable from any thread; it owns one event loop in one thread.

    It is put together step by step, and every step gives a new one. Close it with `close`, or use it with ``with``.
    Inside a running event loop use `KnowledgeBase` itself: waiting here would block that loop.
    """

    def __init__(self) -> None:
        self._take(KnowledgeBase())

    def _take(self, knowledge_base: KnowledgeBase) -> Self:
        self._knowledge_base = knowledge_base
        self._runner = LoopRunner(knowledge_base)
        return self

    @property
    def knowledge_base(self) -> KnowledgeBase:
        """The asynchronous knowledge base behind this one."""
        return self._knowledge_base

    def collection(self, label: str) -> SyncCollection:
{label_docstring}
        return SyncCollection(self._runner.run(self._knowledge_base.collection, label), self._runner)

{knowledge_base}{lifecycle}

def connect_sync({client_function_signature}) -> SyncClient:
    """A `SyncClient`, to be opened with ``with``; the arguments are its own."""
    return SyncClient({client_call})
'''

LIFECYCLE = '''    def initialize(self) -> None:
        """Opens it; does nothing when it is open."""
        self._runner.initialize()

    def close(self) -> None:
        """Closes what was opened; calls of other threads end with a `WorkAbandonedError`."""
        self._runner.close()

    def __reduce__(self) -> str:
        return self._runner.__reduce__()

    def __enter__(self) -> Self:
        self.initialize()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

'''


class Source:
    """The classes of a module, with the text of their methods."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self.classes = {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}

    def piece(self, node: ast.AST) -> str:
        return ast.get_source_segment(self.text, node) or ""

    def imports(self) -> dict[str, str]:
        """Name -> module, of what the module imports, and of its own constants and aliases."""
        found = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                found |= {alias.asname or alias.name: (node.module or "", alias.name) for alias in node.names}
        return {
            name: f"from {module} import {own}" + ("" if own == name else f" as {name}")
            for name, (module, own) in found.items()
        }


def parameters(
    source: Source, function: ast.FunctionDef | ast.AsyncFunctionDef
) -> tuple[list[str], list[str], set[str], set[str]]:
    """The parameters as text, the arguments that hand them on, and the names in annotations and in defaults."""
    told, handed, annotated, defaulted = [], [], set(), set()
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = [(one, default, False) for one, default in zip(positional, defaults, strict=True)]
    if arguments.vararg:
        pairs.append((arguments.vararg, None, False))
    pairs += [(one, default, True) for one, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    star = bool(arguments.vararg)
    for one, default, named in pairs:
        if one.arg == "self":
            told.append("self")
            continue
        if one.arg in LOOP_BOUND:
            continue
        if named and not star:
            told.append("*")
            star = True
        prefix = "*" if one is arguments.vararg else ""
        text = f"{prefix}{one.arg}: {source.piece(one.annotation)}" if one.annotation else one.arg
        if default is not None:
            text += f" = {source.piece(default)}"
            defaulted |= {node.id for node in ast.walk(default) if isinstance(node, ast.Name)}
        if one.annotation:
            annotated |= {node.id for node in ast.walk(one.annotation) if isinstance(node, ast.Name)}
        told.append(text)
        handed.append(f"{one.arg}={one.arg}" if named else f"{prefix}{one.arg}")
    return told, handed, annotated, defaulted


def spread(parts: list[str], indent: str = "        ") -> str:
    return "\n" + "".join(f"{indent}{part},\n" for part in parts) + indent[4:] if len(parts) > 1 else ", ".join(parts)


def docstring(source: Source, function: ast.AST) -> str:
    node = function.body[0]  # type: ignore[attr-defined]
    return "        " + source.piece(node)


def methods(source: Source, name: str, inner: str, used: tuple[set[str], set[str]]) -> str:
    """The public methods and properties of a class, handed to the asynchronous object."""
    made = []
    for node in source.classes[name].body:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if node.name.startswith("_") or node.name in LEFT_OUT:
            continue
        told, handed, annotated, defaulted = parameters(source, node)
        returns = source.piece(node.returns) if node.returns else "None"
        is_stream = returns.startswith("AsyncGenerator[")
        if is_stream:
            returns = returns.removeprefix("Async").replace(", None]", ", None, None]")
        used[0].update(
            annotated,
            (
                one.id.removeprefix("Async") if one.id == "AsyncGenerator" else one.id
                for one in ast.walk(node.returns)
                if isinstance(one, ast.Name)
            )
            if node.returns
            else (),
        )
        used[1].update(defaulted)
        if isinstance(node, ast.FunctionDef) and returns == name:  # a step of putting it together
            call = f"self.{inner}.{node.name}({', '.join(handed)})"
            made.append(
                f"    def {node.name}({spread(told)}) -> Sync{name}:\n{docstring(source, node)}\n"
                f"        return Sync{name}()._take({call})\n"
            )
            continue
        if isinstance(node, ast.FunctionDef) and not is_stream:
            made.append(
                f"    @property\n    def {node.name}(self) -> {returns}:\n{docstring(source, node)}\n"
                f"        return self.{inner}.{node.name}\n"
            )
            continue
        call = f"self._runner.{'iterate' if is_stream else 'run'}({', '.join([f'self.{inner}.{node.name}', *handed])})"
        if returns in WRAPPED:
            call, returns = WRAPPED[returns].format(call), returns.replace("Job", "SyncJob")
        if node.name == "drop_collection":
            body = f"        dropped = {call}\n        self.close()\n        return dropped\n"
        else:
            body = f"        {'' if returns == 'None' else 'return '}{call}\n"
        made.append(f"    def {node.name}({spread(told)}) -> {returns}:\n{docstring(source, node)}\n{body}")
    return "\n".join(made) + "\n"


def constructor(
    source: Source, name: str, used: tuple[set[str], set[str]], method: str = "__init__"
) -> tuple[str, str, str]:
    function = next(
        node for node in source.classes[name].body if isinstance(node, ast.FunctionDef) and node.name == method
    )
    told, handed, annotated, defaulted = parameters(source, function)
    used[0].update(annotated)
    used[1].update(defaulted)
    return spread(told), ", ".join(handed), spread([one for one in told if one != "self"], "    ")


def arguments_of(source: Source, name: str) -> str:
    """The section on arguments of a class's docstring, without those that belong to a loop of their own."""
    text = ast.get_docstring(source.classes[name], clean=False) or ""
    lines = text[text.index("    Args:") :].rstrip().split("\n")
    kept, skipping = [], False
    for line in lines:
        if line.startswith("        ") and not line.startswith("         "):
            skipping = line.strip().split(":")[0] in LOOP_BOUND
        if not skipping:
            kept.append(line)
    return "\n".join(kept)


def generated() -> str:
    """The text of the module."""
    sources = {name: Source(RETRIEVER / ("parts" if name in PARTS else "") / f"{name}.py") for name in SOURCES}
    job_source = Source(RETRIEVER.parent / "jobs" / "job.py")
    used: tuple[set[str], set[str]] = (set(), set())
    collection = methods(sources["collection"], "Collection", "_collection", used)
    for part in PARTS:
        name = {"submission": "Jobs"}.get(part, part.capitalize())
        collection += methods(sources[part], f"Collection{name}", "_collection", used)
    job = methods(job_source, "Job", "_job", used)
    client = methods(sources["client"], "Client", "_client", used)
    retriever = methods(sources["postgres"], "PostgreSQLRetriever", "_retriever", used)
    knowledge_base = methods(sources["knowledge_base"], "KnowledgeBase", "_knowledge_base", used)
    used[0].discard("KnowledgeBase")
    client_signature, client_call, client_function_signature = constructor(sources["client"], "Client", used)
    retriever_signature, retriever_call, _ = constructor(sources["postgres"], "PostgreSQLRetriever", used)
    collection_signature, collection_call, _ = constructor(sources["client"], "Client", used, "collection")
    make = next(node for node in sources["client"].classes["Client"].body if getattr(node, "name", "") == "collection")
    labelled = next(
        node
        for node in sources["knowledge_base"].classes["KnowledgeBase"].body
        if getattr(node, "name", "") == "collection"
    )
    filling = next(
        node for node in sources["tables"].classes["CollectionTables"].body if getattr(node, "name", "") == "hits_into"
    )
    using = next(
        node for node in sources["collection"].classes["Collection"].body if getattr(node, "name", "") == "using"
    )
    known: dict[str, str] = {"Generator": "from collections.abc import Generator"}
    for name, source in sources.items():
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                known |= {
                    target.id: f"from semlex.retriever.{'parts.' if name in PARTS else ''}{name} import {target.id}"
                    for target in node.targets
                    if isinstance(target, ast.Name)
                }
    for source in sources.values():
        known |= source.imports()
    typing = {"Any", "Literal", "Self", "TYPE_CHECKING"}
    at_run_time = {known[name] for name in used[1] if name in known}
    at_run_time |= {
        "from semlex.retriever.client import Client",
        "from semlex.retriever.knowledge_base import KnowledgeBase",
        "from semlex.retriever.postgres import PostgreSQLRetriever",
    }
    for_types = {known[name] for name in used[0] - typing if name in known} - at_run_time
    for_types |= {
        "from semlex.retriever.collection import Collection",
        "from semlex.store.postgres.connection import CallersConnection",
        "from collections.abc import Callable",
        "from collections.abc import Coroutine",
    }
    return (
        HEADER.format(
            imports="\n".join(sorted(at_run_time)),
            type_imports="\n".join(f"    {line}" for line in sorted(for_types)),
            collection=collection,
            job=job,
            client=client,
            retriever=retriever,
            knowledge_base=knowledge_base,
            label_docstring=docstring(sources["knowledge_base"], labelled),
            lifecycle=LIFECYCLE,
            client_signature=client_signature,
            client_call=client_call,
            client_function_signature=client_function_signature,
            client_arguments=arguments_of(sources["client"], "Client"),
            retriever_signature=retriever_signature,
            retriever_call=retriever_call,
            retriever_arguments=arguments_of(sources["postgres"], "PostgreSQLRetriever"),
            collection_signature=collection_signature,
            collection_call=collection_call,
            collection_docstring=docstring(sources["client"], make),
            using_docstring=docstring(sources["collection"], using),
            hits_into_docstring=docstring(sources["tables"], filling),
        )
        .replace("\n\n\n\n", "\n\n\n")
        .rstrip()
        + "\n"
    )


if __name__ == "__main__":
    text = generated()
    if "--check" in sys.argv:
        sys.exit(0 if text == TARGET.read_text(encoding="utf-8") else f"{TARGET.name} is out of date: ./x synchronous")
    TARGET.write_text(text, encoding="utf-8")
