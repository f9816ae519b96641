"""The Python API: from the signatures and docstrings of what users import, one page for each task."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from importlib import import_module
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Any, ForwardRef, is_typeddict

import semlex
from docs.generate.markdown import Docstring, slug, table, text
from semlex import errors
from semlex.embedding.base import CheckedEmbedder
from semlex.options.declare import declared
from semlex.retriever import synchronous

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

FOLDER = Path(semlex.__file__).parent
# Page -> what is on it: public names, and MODULE:NAME of what these return or take.
PAGES: dict[str, str] = {
    "open": "SyncRetriever PostgreSQLRetriever SyncClient Client connect connect_sync from_settings "
    "from_settings_sync retriever.options:RetrieverOptions retriever.options:ClientOptions "
    "CollectionOptions Bm25Options QueryLogOptions FileLimits",
    "collection": "Collection SyncCollection retriever.documents:Documents retriever.tables:Tables "
    "retriever.fields:Fields retriever.indexes:Indexes retriever.embeddings:Embeddings "
    "retriever.jobs:Jobs retriever.queries:Queries",
    "searches": "SearchOptions SearchDefaults Tuning SearchQuery F FilterTree SearchResults SearchResult DocumentHits "
    "LegReport SearchExplanation HitExplanation QueryTerm Route ConfidenceCurve Explanation Reason "
    "LegFigures options.search:RankingOptions options.search:CandidateOptions options.search:FacetOptions "
    "Facets Facet FacetValue FieldSummaries FieldSummary",
    "answer": "ContextOptions Context ContextSource AnswerOptions Answer AnswerSentence Citation",
    "documents": "Document VectorDocument StoredChunk ChunkMetadata WholeDocument Outline Heading DocumentStates "
    "DocumentInfo DocumentName MovedDocument retriever.options:IndexOptions retriever.options:SyncOptions "
    "retriever.options:WatchOptions options.indexing:RechunkOptions Progress IndexReport SyncPlan "
    "SyncReport SyncCounts DeleteReport types.documents:Ids Enrichment EnrichmentEstimate "
    "EnrichmentReport preview_chunks ingest.preview:PreviewedFile",
    "load": "BulkIngestConfig RowFields LoadReport options.indexing:TableOptions TableImport "
    "types.followed:FollowedTable types.followed:FollowedStatus types.followed:TableSync "
    "types.followed:RowProblem TransferReport Loader register_loader LoadOptions LoadedDocument Record "
    "FileBytes MetadataExtraction LoadError",
    "model classes": "Embedder BaseEmbedder EmbedderIdentity StaticEmbedder Qwen3EmbeddingEncoder "
    "SentenceTransformersEmbedder OpenAIEmbedder GeminiEmbedder Reranker TermOverlapReranker "
    "CrossEncoderReranker Qwen3Reranker LLMReranker CohereReranker TEIReranker "
    "models.remote_model:RequestOptions ChatModel chat:Message chat:Completion OpenAIChatModel "
    "EmbeddingFigures ReembedReport",
    "knowledge bases": "KnowledgeBase SyncKnowledgeBase retriever.options:KnowledgeOptions KnowledgeHit "
    "KnowledgeResults JSONKBRetriever SyncJSONKBRetriever DocumentRetriever",
    "operate": "HnswIndex IvfflatIndex NoIndex store.indexes.build:IndexesBuilt store.indexes.estimate:IndexEstimate "
    "Job SyncJob options.indexing:JobOptions diagnostics.status:CollectionStatus "
    "diagnostics.status:ServerHealth store.schema.collection:ListedCollection "
    "diagnostics.status:CountedCollection store.schema.registry:Step Diagnosis Finding Checkup "
    "LoggedQuery QueryLogSummary",
}
# Public names that the page on errors describes.
ERRORS = "SemlexError ValidationError"
# Module below semlex.integrations -> what programs import from it. Most frameworks are not installed here.
INTEGRATIONS = {
    "langchain": "SemlexRetriever SemlexVectorStore SemlexReranker LangChainEmbedder",
    "langgraph": "retrieval_node retrieval_tool",
    "llama_index": "SemlexVectorStore SemlexRetriever",
    "haystack": "SemlexDocumentStore SemlexEmbeddingRetriever SemlexKeywordRetriever SemlexHybridRetriever",
    "ray": "SemlexEmbed SemlexSink read_semlex",
    "sqlalchemy": "register search_models ModelOptions",
    "django": "SearchManager RankedRows FollowTable",
}
SYNCHRONOUS = {made: kind.__name__ for kind, made in synchronous._KINDS.items() if made}  # noqa: SLF001
WIDTH = 100
_REFERENCE = re.compile(r"(?<!\[)`(?P<name>\w+)`(?!\])|(?P<page>docs/(?P<path>[\w/-]+\.md))")
# Interfaces whose members have one description for all classes that have them.
DESCRIBED_ONCE = (semlex.Embedder, CheckedEmbedder, semlex.Reranker, semlex.ChatModel)
# Wrappers of a type that are not part of it.
DECLARING = ("Annotated", "ClassVar", "NotRequired", "Required", "Unpack")


def parts() -> Mapping[str, Callable[[], str]]:
    """Return the generated parts: the list of names, and each page."""
    pages = {f"python {page}": partial(page_of, page) for page in PAGES}
    return {"python names": names, **pages, "python integrations": integrations}


def names() -> str:
    """Return the table of all public names with their pages."""
    known = [name for listed in (*PAGES.values(), ERRORS) for name in listed.split() if ":" not in name]
    assert sorted(known) == sorted(semlex.__all__), set(known) ^ set(semlex.__all__)  # noqa: S101 - of whoever adds one
    rows = ([_linked(f"`{name}`", ""), text(_summary(getattr(semlex, name)))] for name in sorted(known))
    return table(["name", "what it is"], rows)


def page_of(page: str) -> str:
    """Return the sections of a page."""
    found = [_loaded(name) for name in PAGES[page].split()]
    return _linked("\n\n".join(part for name, value in found for part in _section(name, value)), page.replace(" ", "-"))


def integrations() -> str:
    """Return a section for each integration, read from its source."""
    found = []
    for module, listed in INTEGRATIONS.items():
        found += [f"## semlex.integrations.{module}"]
        for name in listed.split():
            found += _from_source(module, name)
    return _linked("\n\n".join(found), "integrations")


def _loaded(name: str) -> tuple[str, Any]:
    module, _, attribute = name.rpartition(":")
    return attribute, getattr(import_module(f"semlex.{module}") if module else semlex, attribute)


def _summary(value: Any) -> str:
    return (inspect.getdoc(value) or "").partition("\n\n")[0]


@cache
def _places() -> dict[str, str]:
    """Return the page and anchor of every name that has a section, from the folder of the reference."""
    found = {name: f"errors.md#{slug(name)}" for name, kind in vars(errors).items() if inspect.isclass(kind)}
    for page, listed in PAGES.items():
        for name in (one.rpartition(":")[2] for one in listed.split()):
            found[name] = f"python-api/{page.replace(' ', '-')}.md#{slug(name)}"
    return found


def _linked(markdown: str, page: str) -> str:
    """Link pages, and names that have a section, outside of headings and blocks."""
    own = f"python-api/{page}.md" if page else "python-api.md"

    def address(place: str) -> str:
        return place.removeprefix(own) if place.startswith(own) else relpath(place, Path(own).parent)

    def link(found: re.Match[str]) -> str:
        if found["page"]:
            return f"[{found['page']}]({address('../' + found['path'])})"
        place = _places().get(found["name"])
        return f"[`{found['name']}`]({address(place)})" if place else found[0]

    blocks = re.split(r"(^```.*?^```|^#.*?$)", markdown, flags=re.DOTALL | re.MULTILINE)
    return "".join(one if number % 2 else _REFERENCE.sub(link, one) for number, one in enumerate(blocks))


def _section(name: str, value: Any) -> Iterator[str]:
    yield f"## {name}"
    if inspect.isclass(value) and name != value.__name__:
        yield f"Another name of `{value.__name__}`."
        return
    described = Docstring(inspect.getdoc(value) or "")
    yield from described.opening()
    if value in SYNCHRONOUS:
        own = SYNCHRONOUS[value]
        yield f"It has the methods and attributes of `{own}`, without `await`. `asynchronous` is the `{own}` behind it."
    if is_typeddict(value) and declared(value):
        yield table(["option", "type", "meaning"], _options(value))
    elif not inspect.isclass(value):
        yield _signature(name, value)
        yield from described.rest()
    else:
        yield from _class(name, value, described)


def _class(name: str, kind: type, described: Docstring) -> Iterator[str]:
    if described.sections.get("Args") and "__init__" in vars(kind):
        yield _signature(name, kind)
    yield from described.rest()
    if kind in SYNCHRONOUS:
        return
    if rows := list(_attributes(kind)):
        yield table(["attribute", "type", "meaning"], rows)
    if bases := [f"`{one.__name__}`" for one in _public_bases(kind)]:
        yield f"It also has everything of {', '.join(bases)}."
    for member, value in _members(kind):
        if not isinstance(value, property):
            yield f"### {name}.{member}"
            method = Docstring(inspect.getdoc(getattr(kind, member)) or "")
            yield from method.opening()
            yield _signature(member, getattr(value, "__func__", value))
            yield from method.rest()


def _public_bases(kind: type) -> list[type]:
    return [one for one in kind.__mro__[1:] if one.__name__ in semlex.__all__]


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Return the public methods and properties that a class has itself or from a base that is not public."""
    public = _public_bases(kind)
    elsewhere = public if kind in DESCRIBED_ONCE else [*public, *DESCRIBED_ONCE]
    seen = {name for one in elsewhere for name in vars(one)}
    for one in kind.__mro__:
        if one.__module__.startswith("semlex.") and one not in public:
            for name, value in vars(one).items():
                is_offered = isinstance(value, property) or inspect.isfunction(getattr(value, "__func__", value))
                if not name.startswith("_") and name not in seen and is_offered:
                    seen.add(name)
                    yield name, value


def _attributes(kind: type) -> Iterator[list[str]]:
    """Return the fields that a docstring or a declaration names, and the properties."""
    public = _public_bases(kind)
    own = [one for one in reversed(kind.__mro__) if one.__module__.startswith("semlex.") and one not in public]
    meanings = dict(entry for one in own for entry in Docstring(inspect.getdoc(one) or "").entries("Attributes"))
    defaults = {one.name: one for one in fields(kind)} if is_dataclass(kind) else {}
    hints = {
        name: _written(hint) for one in reversed(kind.__mro__) for name, hint in inspect.get_annotations(one).items()
    }
    inherited = {name for one in public for name in inspect.get_annotations(one)}
    own_fields = (name for name in defaults if not name.startswith("_") and (name in meanings or name not in inherited))
    for name in dict.fromkeys([*own_fields, *meanings]):
        default = defaults[name].default if name in defaults else MISSING
        ends = "" if default is MISSING else f" = {_default(default)}"
        yield [f"`{name}`", f"`{hints[name]}{ends}`" if name in hints else "", text(meanings.get(name, ""))]
    for name, value in _members(kind):
        if isinstance(value, property) and name not in meanings:
            returned = value.fget.__annotations__.get("return", "") if value.fget else ""
            meaning = re.sub(r"^Return (\w)", lambda found: found[1].upper(), _summary(value))
            yield [f"`{name}`", f"`{_written(returned)}`", text(meaning)]


def _options(kind: Any) -> Iterator[list[str]]:
    for name, one in declared(kind).items():
        written = _written(kind.__annotations__[name])
        if re.fullmatch(r"\w+", written) and written not in {*dir(builtins), *_places()}:  # an alias
            resolved = " | ".join(map(repr, one.choices)) or _written(one.kind)
            resolved += " | None" if one.optional and not resolved.endswith("None") else ""
            written = written if "_AnyName" in resolved else resolved
        bounds = one.option.minimum, one.option.maximum
        limits = "" if None in bounds else f" Range: {bounds[0]:,} to {bounds[1]:,}."
        yield [f"`{name}`", f"`{written}`", text(one.option.text + limits)]


def _written(hint: Any) -> str:
    """Return a type as its module writes it, without what is declared beside it."""
    written = hint.__forward_arg__ if isinstance(hint, ForwardRef) else hint
    if not isinstance(written, str):
        return re.sub(r"(?:\w+\.)+", "", inspect.formatannotation(written))
    if not written:
        return ""
    found = ast.parse(written.strip(), mode="eval").body
    if isinstance(found, ast.Subscript) and ast.unparse(found.value) in DECLARING:
        found = found.slice.elts[0] if isinstance(found.slice, ast.Tuple) else found.slice
    return ast.unparse(found)


def _signature(name: str, value: Any) -> str:
    signature = inspect.signature(value)
    parts: list[str] = []
    for one in signature.parameters.values():
        if one.name in ("self", "cls"):
            continue
        if one.kind is one.KEYWORD_ONLY and not any(part.startswith("*") for part in parts):
            parts.append("*")
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        typed = "" if one.annotation is one.empty else f": {_written(one.annotation)}"
        default = "" if one.default is one.empty else f" = {_default(one.default)}"
        parts.append(f"{stars}{one.name}{typed}{default}")
    returned = signature.return_annotation
    ends = "" if inspect.isclass(value) or returned is signature.empty else f" -> {_written(returned)}"
    return _block(f"{'await ' if inspect.iscoroutinefunction(value) else ''}{name}", parts, ends)


def _default(value: Any) -> str:
    """Return a default as programs write it."""
    if is_dataclass(value) and value == type(value)():  # type: ignore[operator]
        return f"{type(value).__name__}()"
    return "..." if "<" in repr(value) else repr(value)


def _block(name: str, parts: list[str], returned: str) -> str:
    line = f"{name}({', '.join(parts)}){returned}"
    if len(line) > WIDTH:
        line = f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returned}"
    return f"```py\n{line}\n```"


def _from_source(module: str, name: str) -> Iterator[str]:
    """Return the section of a class or function whose framework need not be installed."""
    place = FOLDER / "integrations" / module
    paths = sorted(place.glob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    bodies = [one for path in paths for one in ast.parse(path.read_text(encoding="utf-8")).body]
    node = [one for one in bodies if getattr(one, "name", None) == name][-1]  # the last of overloaded ones
    assert isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))  # noqa: S101 - as it is named
    described = Docstring(ast.get_docstring(node) or "")
    yield f"### {name}"
    yield from described.opening()
    functions = [node, *(node.body if isinstance(node, ast.ClassDef) else ())]
    for one in functions:
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) and (one.name == "__init__" or one is node):
            given = [part for part in _arguments(one.args) if part != "self"]
            yield _block(name, given, f" -> {ast.unparse(one.returns)}" if one is node and one.returns else "")
    yield from described.rest()
    if attributes := list(described.entries("Attributes")):
        yield table(["attribute", "meaning"], ([f"`{one}`", text(meaning)] for one, meaning in attributes))


def _arguments(given: ast.arguments) -> list[str]:
    """Return parameters as they are written, one by one."""
    parts = re.split(r",\s*(?![^\[\](){}]*[\])}])", ast.unparse(given))
    return [re.sub(r"(: .+?)=", r"\1 = ", part.strip(), count=1) for part in parts]
