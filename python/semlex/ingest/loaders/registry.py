"""Choose the loader of a file: by its name, or by its first bytes if they show another format."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec

from semlex.errors import ConfigurationError
from semlex.ingest.loaders.base import FileBytes, LoadedDocument, Loader, LoadError, LoadOptions, suffix_of
from semlex.ingest.loaders.decoding import storable_document
from semlex.ingest.loaders.json_formats import JsonLinesLoader, NotebookLoader, PrechunkedLoader
from semlex.ingest.loaders.markdown import CodeLoader, HtmlLoader, MarkdownLoader, RestructuredTextLoader, TextLoader
from semlex.ingest.loaders.office import EXTRA, MEDIA_TYPES, PACKAGE, MissingOfficeLoader, OfficeLoader
from semlex.ingest.loaders.records import TableLoader

GROUP = "semlex.loaders"
# Formats that an extra reads, by suffix.
WITH_EXTRA: dict[str, str] = dict.fromkeys(MEDIA_TYPES, EXTRA)

# First bytes of binary formats.
MARKS = {b"%PDF-": "pdf"}
PLAIN = TextLoader()

# The last loader of a suffix is used.
_own: tuple[Loader, ...] = (
    PLAIN,
    RestructuredTextLoader(),
    CodeLoader(),
    MarkdownLoader(),
    HtmlLoader(),
    TableLoader(),
    JsonLinesLoader(),
    NotebookLoader(),
    PrechunkedLoader(),
    *(OfficeLoader(name) for name in MEDIA_TYPES if find_spec(PACKAGE) is not None),
)
_registered: list[Loader] = []
_installed: list[Loader] | None = None


def register_loader(loader: Loader) -> None:
    """Use a loader for files with its suffixes, in this process, instead of the built-in one.

    Raises:
        ConfigurationError: It is not a loader.
    """
    _registered.append(_checked(loader, "the loader"))


def loaders() -> Mapping[str, Loader]:
    """Return the loader of every suffix: a registered one, else one from a package, else the built-in one."""
    return {suffix: loader for loader in (*_own, *_from_packages(), *_registered) for suffix in loader.suffixes}


def loader_of(file: FileBytes, known: Mapping[str, Loader]) -> Loader:
    """Return the loader of a file by its name, or by its first bytes; unknown files are plain text."""
    for mark, suffix in MARKS.items():
        if file.data.startswith(mark) and file.suffix not in WITH_EXTRA:
            return known.get(suffix) or MissingOfficeLoader(suffix)
    return loader_named(file.uri, known)


def loader_named(uri: str, known: Mapping[str, Loader]) -> Loader:
    """Return the loader of a file by its name."""
    suffix = suffix_of(uri)
    if suffix in WITH_EXTRA and suffix not in known:
        return MissingOfficeLoader(suffix)
    return known.get(suffix, PLAIN)


def structure_named(uri: str) -> str:
    """Return the structure of a text by the document's name, as for `semlex._core.split_text`."""
    loader = loader_named(uri, loaders())
    if isinstance(loader, CodeLoader):
        return f"code:{suffix_of(uri)}"
    return "restructuredtext" if isinstance(loader, TextLoader) else "markdown"


def load(file: FileBytes, loader: Loader, options: LoadOptions) -> LoadedDocument:
    """Load a file, and return its text in a form that can be stored."""
    try:
        loaded = loader.load(file, options)
        if isinstance(loaded, LoadedDocument):
            return storable_document(loaded, options)
        wrong, cause = f"returned {type(loaded).__name__}, not a LoadedDocument", None
    except LoadError:
        raise
    except Exception as error:  # noqa: BLE001 - a user's loader may raise anything
        wrong, cause = f"failed ({type(error).__name__})", error
    raise LoadError("loader_failed", f"the loader {loader.name!r} {wrong}: correct the loader") from cause


def _from_packages() -> list[Loader]:
    global _installed  # noqa: PLW0603 - packages do not come and go while a process runs
    if _installed is None:
        found = []
        for entry in entry_points(group=GROUP):
            made = entry.load()
            found.append(_checked(made() if isinstance(made, type) else made, f"the entry point {entry.name!r}"))
        _installed = found
    return _installed


def _checked(loader: Loader, what: str) -> Loader:
    if isinstance(loader, type) or not isinstance(loader, Loader):
        raise ConfigurationError(f"{what} must have name, suffixes, version and load(file, options)")
    return loader
