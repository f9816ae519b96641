"""Names of models: what a name leads to, which host gets a key, which ONNX file is used, and models known to work.

    none, auto, static               reserved names; for rerankers also term-overlap
    PATH, HUB_ID                     a folder, or a model of the hub; also behind one of `LOCAL_PREFIXES`
    onnx:PATH_OR_ID, onnx:…#FILE     the best or a named one of the ONNX files of such a model
    onnx:semlex-weights              the model in the wheel of this name, if it is installed
    ACCOUNT:MODEL                    a model of one of the `ACCOUNTS`; a reranker that is a chat model has llm: in front
    ollama:MODEL                     a model of the Ollama server (``OLLAMA_HOST``)
    http(s)://HOST[:PORT]/v1#MODEL   a model behind an address; for rerankers with tei+ or llm+ in front

A name that another user wrote (into a database, or into a copied settings file) must not cause texts to be sent or
files to be loaded. Callers check such a name with `leads_to` first.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from typing import Generic, Literal, TypeVar
from urllib.parse import urlsplit

from semlex.errors import ConfigurationError

# Used by default if they are cached and this machine has a GPU.
DEFAULT_EMBEDDING_MODEL = "Qwen/Qwen3-Embedding-0.6B"
DEFAULT_RERANKING_MODEL = "Qwen/Qwen3-Reranker-0.6B"
# The task of Qwen3's model cards; English also for other languages, since most of the training tasks were written in
# English.
DEFAULT_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
ONNX_PREFIX = "onnx:"
# In front of the name of a model that runs on this machine.
LOCAL_PREFIXES = ("sentence-transformers:", "cross-encoder:", ONNX_PREFIX)
OLLAMA_PORT = 11434
# Prefix of the names of models that a program passes in through LangChain.
LANGCHAIN = "langchain:"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
# Names of rerankers that use a server, or may use one, although they contain no colon.
_SERVER_NAMES = frozenset({"auto", "cohere"})
# The key of servers that have no account of their own, and the setting that names the server it is for.
MODEL_VARIABLES = {
    "SEMLEX_EMBEDDING_API_KEY": "SEMLEX_EMBEDDING_MODEL",
    "SEMLEX_RERANKER_API_KEY": "SEMLEX_RERANKER_MODEL",
    "SEMLEX_CHAT_API_KEY": "SEMLEX_CHAT_MODEL",
}
Model = TypeVar("Model")


@dataclass(frozen=True, slots=True)
class ModelChoice(Generic[Model]):
    """The chosen model, or None, and one line: what was chosen, why, and where texts are sent."""

    model: Model | None
    reason: str


@dataclass(frozen=True, slots=True)
class Account:
    """A provider of models: its address, and the environment variables of its key (the first that is set counts)."""

    url: str
    variables: tuple[str, ...]

    @property
    def variable(self) -> str:
        """Return the variable that is set, else all of them joined by "or", for messages."""
        return next(filter(environment, self.variables), " or ".join(self.variables))


ACCOUNTS = {
    "openai": Account("https://api.openai.com/v1", ("OPENAI_API_KEY",)),
    "openrouter": Account("https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",)),
    "gemini": Account("https://generativelanguage.googleapis.com", ("GEMINI_API_KEY", "GOOGLE_API_KEY")),
    "cohere": Account("https://api.cohere.com/v2", ("COHERE_API_KEY", "CO_API_KEY")),
    "jina": Account("https://api.jina.ai/v1", ("JINA_API_KEY",)),
}


def environment(variable: str) -> str | None:
    """Return an environment variable; a blank one counts as not set."""
    return os.environ.get(variable, "").strip() or None


def scheme_of(name: str) -> str:
    """Return the part before a name's first colon: ``openai``, ``tei+https``; "" for a path or a hub id."""
    # One letter and a colon begin a path of Windows.
    found = re.match(r"([\w+-]{2,}):", name)
    return found[1] if found else ""


def bare_name(name: str) -> str:
    """Return a local model's name without its prefix, and without the file of an ONNX model."""
    if name.startswith(ONNX_PREFIX):
        return split_name(name)[0]
    for prefix in LOCAL_PREFIXES:
        name = name.removeprefix(prefix)
    return name


def short_name(name: str) -> str:
    """Return a model's name without its folder or address, which not every caller should see."""
    name = bare_name(name).rpartition("#")[2] if "://" in name else bare_name(name)
    return PurePath(name).name if PurePath(name).is_absolute() else name


def is_path_or_hub_id(name: str) -> bool:
    """Return whether a name without a prefix can name a model on this machine."""
    return "://" not in name and (not scheme_of(name) or _is_folder(name))


def leads_to(name: str) -> Literal["server", "folder"] | None:
    """Return whether a model's name means a server or a folder; None for other names: a hub id, "static", "none"."""
    local = bare_name(name)
    if "://" in local or scheme_of(local) or local in _SERVER_NAMES:
        return "server"
    return None if _HUB_ID.fullmatch(local) and ".." not in local and not _is_folder(local) else "folder"


def _is_folder(name: str) -> bool:
    return os.path.isdir(name)  # noqa: PTH112


def model_and_address(name: str) -> tuple[str, str]:
    """Return both parts of ``ADDRESS#MODEL``."""
    address, _, model = name.partition("#")
    if not model.strip():
        raise ConfigurationError("an address must end with # and the model's name: http(s)://HOST[:PORT]/v1#MODEL")
    return model, address


def host_of(name: str) -> str | None:
    """Return host and port of an address (``http(s)://…``, also with ``tei+`` or ``llm+`` in front), or None."""
    name = name.removeprefix("tei+").removeprefix("llm+")
    if not name.startswith(("http://", "https://")):
        return None
    try:
        parts = urlsplit(name)
        port = parts.port
    except ValueError:
        return None
    return f"{parts.hostname}:{port or {'http': 80, 'https': 443}[parts.scheme]}"


def host_at(base_url: str) -> tuple[str, bool]:
    """Return host and port of a server's address, for messages, and whether that is this machine."""
    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname, parts.port
    except ValueError:
        parts, host, port = None, None, None
    if parts is None or parts.scheme not in {"http", "https"} or not host or re.search(r"[\s\x00-\x1f\x7f]", base_url):
        raise ConfigurationError("the address of a server must have the form http(s)://HOST[:PORT][/PATH]")
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError(
            f"the address of {host} must not hold a user or password; give the key as api_key or in the environment"
        )
    if parts.query or parts.fragment:
        raise ConfigurationError(f"the address of {host} must not hold a query (?…) or a fragment (#…)")
    name = f"[{host}]" if ":" in host else host
    return (name if port is None else f"{name}:{port}"), _is_loopback(host)


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def ollama_address() -> str:
    """Return the address of the Ollama server, reading ``OLLAMA_HOST`` as Ollama's own client does."""
    value = os.environ.get("OLLAMA_HOST", "").strip().strip("\"'")
    if not value:
        return f"http://localhost:{OLLAMA_PORT}/v1"
    has_scheme = "://" in value
    try:
        parts = urlsplit(value if has_scheme else f"http://{value}")
        host, port = parts.hostname or "127.0.0.1", parts.port
    except ValueError:
        raise ConfigurationError("OLLAMA_HOST must have the form [http(s)://]HOST[:PORT]") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigurationError("OLLAMA_HOST must not hold a user or password")
    if host in {"0.0.0.0", "::"}:  # noqa: S104 (a server's own setting: every address of this machine)
        host = "127.0.0.1"
    bracketed = f"[{host}]" if ":" in host else host
    # With a scheme and no port, Ollama takes the scheme's own port.
    place = bracketed if port is None and has_scheme else f"{bracketed}:{port or OLLAMA_PORT}"
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}/v1"


def key_for(variable: str, address: str) -> tuple[str | None, str]:
    """Return the environment's key for a server of an unknown provider, or None; and the variable, for messages."""
    # If the environment also names an address, the key is for that host only; else it is for the address that the user
    # names.
    key = environment(variable)
    setting = MODEL_VARIABLES[variable]
    host = host_of(os.environ.get(setting, ""))
    if key is None or host is None or host == host_of(address):
        return key, variable
    return None, f"{variable} (its value is not sent: it is for {host}, the server in {setting})"


WEIGHTS_WHEEL = "semlex-weights"
# The first that is there is taken: full precision, then published int8 files, from those that run on every CPU to
# those that need certain units.
# Full precision comes first: int8 vectors differ between processors, and keep a cosine of .99 only.
PREFERRED_FILES = tuple(
    f"{folder}{name}.onnx"
    for name in (
        *("model", "model_quantized", "model_int8", "model_uint8", "model_quint8_avx2"),
        *("model_qint8_avx512", "model_qint8_avx512_vnni", "model_qint8_arm64"),
    )
    for folder in ("", "onnx/")
)
_NAME_AND_FILE = re.compile(r"(.+)#([^#]+\.onnx)")


def split_name(name: str) -> tuple[str, str | None]:
    """Split the name of an ONNX model into its folder or hub id, and the named file or None."""
    found = _NAME_AND_FILE.fullmatch(name.removeprefix(ONNX_PREFIX))
    return (name.removeprefix(ONNX_PREFIX), None) if found is None else (found[1], found[2])


def choose_file(names: Iterable[str], wanted: str | None = None) -> str | None:
    """Return which of the ONNX files to use: `wanted`, or by default the best known one or the only one; else None."""
    found = [name for name in names if name.endswith(".onnx")]
    if wanted is not None:
        return wanted if wanted in found else None
    preferred = next((name for name in PREFERRED_FILES if name in found), None)
    # A single file with an unknown name is used.
    return found[0] if preferred is None and len(found) == 1 else preferred


def companions(file: str) -> list[str]:
    """Return the names of the files in which a large model keeps its weights beside the ONNX file."""
    return [f"{file}_data", f"{file}.data"]


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model of the Hugging Face hub that is known to work, with its size and speed."""

    name: str  # hub id
    kind: Literal["embedder", "reranker"]
    megabytes: int  # of the ONNX file that is downloaded, in full precision
    licence: str  # as the model card states
    languages: str  # of the texts that it was made for
    # Texts of 250 tokens that a core reads in a second, measured with a model of this shape in full precision on a core
    # with AVX512; published int8 files are about twice as fast.
    texts_per_second: float
    prompts: tuple[str, str] = ("", "")  # texts put before queries and documents if the model's own files give none.


_RETRIEVAL = ("Represent this sentence for searching relevant passages: ", "")
KNOWN_MODELS = (
    KnownModel("BAAI/bge-small-en-v1.5", "embedder", 133, "MIT", "English", 7.6, _RETRIEVAL),
    KnownModel("Snowflake/snowflake-arctic-embed-s", "embedder", 133, "Apache-2.0", "English", 7.6, _RETRIEVAL),
    KnownModel("Snowflake/snowflake-arctic-embed-m", "embedder", 436, "Apache-2.0", "English", 2.2, _RETRIEVAL),
    KnownModel(
        "intfloat/multilingual-e5-small", "embedder", 470, "MIT", "94 languages", 7.6, prompts=("query: ", "passage: ")
    ),
    KnownModel("cross-encoder/ms-marco-MiniLM-L6-v2", "reranker", 91, "Apache-2.0", "English", 15.2),
    KnownModel("cross-encoder/ms-marco-MiniLM-L12-v2", "reranker", 133, "Apache-2.0", "English", 7.6),
    KnownModel("BAAI/bge-reranker-base", "reranker", 1112, "MIT", "English, Chinese", 2.2),
)


def known_prompts(name: str) -> dict[bool, str]:
    """Return the texts that a known model needs before queries (True) and documents (False)."""
    found = next((model.prompts for model in KNOWN_MODELS if model.name == name), ("", ""))
    return {True: found[0], False: found[1]}
