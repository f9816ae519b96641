"""What the schema allows is answered, and what it does not allow is refused: schemathesis, with all of its checks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import schemathesis
from hypothesis import settings
from hypothesis import strategies as st
from schemathesis.generation.modes import GenerationMode

from semlex import Document, SyncClient
from semlex.errors import SemlexError
from semlex.filters.forms import filter_tree
from semlex.server.access.tokens import TokenFile
from semlex.server.app import create_app
from semlex.server.options import ServeOptions
from semlex.testing import HashEmbedder
from tests.support.http_server import COLLECTION, FixedSettings, in_a_thread, settings_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Of each operation.
EXAMPLES = {10: 10, 25: 50, 10_000: 1_000}[settings.default.max_examples]
pytestmark = pytest.mark.slow
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
words = st.text(characters, min_size=1, max_size=30).filter(lambda text: text.strip() != "")
fields = st.from_regex(r"[a-z][a-z0-9_]{0,12}", fullmatch=True)
FORMATS = {
    "question": words,
    "word": words,
    "content": words,
    "id": words | st.sampled_from(["d0", "d1"]),
    "document": words | st.sampled_from(["d0", "d1"]),
    "filter": st.builds("{} == {}".format, fields, st.integers(0, 99))
    | st.just('year >= 2020 and lang in ["en", "de"]'),
    "language": st.sampled_from(["german", "de", "simple"]),
    "field": fields | st.sampled_from(["@source", "year"]),
    "cursor": words,
    "path": words,
}
for name, strategy in FORMATS.items():
    schemathesis.openapi.format(name, strategy)


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens") / "tokens.json"


@pytest.fixture(scope="module")
def secret(token_file: Path) -> str:
    return TokenFile(token_file).add("all", "admin")


@pytest.fixture(scope="module")
def served(new_database: Callable[[], str], token_file: Path, secret: str) -> Iterator[str]:
    del secret
    url = new_database()
    with SyncClient(url, embedding_model=HashEmbedder(), use_reranking=False) as client:
        documents = [Document(f"A key of {n} doors.", id=f"d{n}", metadata={"year": 2020 + n}) for n in range(5)]
        client.collection(COLLECTION).add_documents(documents)
    with in_a_thread(url, token_file=token_file, rate=0) as (host, port):
        yield f"http://{host}:{port}"


def described() -> dict[str, Any]:
    """With a token file that need not be there: whether there are tokens is in the description."""
    return create_app(ServeOptions(token_file=Path("tokens")), FixedSettings(settings_for())).openapi()


schema = schemathesis.openapi.from_dict(described())
# What is too long is refused by its length, before it is compared with the schema.
schema.config.checks.negative_data_rejection.expected_statuses += ["413"]
schema.config.checks.not_a_server_error.expected_statuses += ["503"]
# Metadata with NUL is refused, which a schema cannot say of texts within objects.
schema.config.generation.allow_x00 = False


def breaks_a_rule(change: Any, case: Any) -> bool:
    """Whether a change of a good request makes a bad one.

    Of a format any other text is taken for bad, and may be a good one. A header that was left out is sent all the same,
    with the token. In an address every value is a text, and a list without elements is not there.
    """
    where, keywords = change.parameter_location.value, set(change.keywords)
    if where == "query":
        sent = {name for name, value in (case.query or {}).items() if value not in (None, [], {})}
        known = {parameter.name for parameter in case.operation.query}
        needed = {parameter.name for parameter in case.operation.query if parameter.is_required}
        changed = change.schema_pointer.removeprefix("/properties/").partition("/")[0]
        if not needed <= sent <= known:
            return True
        if keywords <= {"additionalProperties", "required"} or changed in known - sent:
            return False
    return not ("format" in keywords or where == "header" or (where in ("query", "path") and "type" in keywords))


@schema.hook
def filter_case(_context: Any, case: Any) -> bool:
    """A filter as an object and a vector have rules that a schema cannot say: what breaks them is left out.

    So is what breaks no rule, though schemathesis takes it for broken (`breaks_a_rule`).
    """
    changed = [] if case.meta is None else getattr(case.meta.phase.data, "mutations", ())
    if changed and not any(breaks_a_rule(change, case) for change in changed):
        return False
    body = case.body if isinstance(case.body, dict) else {}
    if case.meta is None or case.meta.generation.mode is not GenerationMode.POSITIVE:
        return True
    try:
        if isinstance(body.get("filters"), dict):
            filter_tree(body["filters"])
    except SemlexError:
        return False
    with np.errstate(over="ignore"):
        length = np.square(np.asarray(body.get("vector") or [1], dtype=np.float32)).sum()
    return bool(np.finfo(np.float32).tiny <= length <= np.finfo(np.float32).max)


@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None)
def test_the_schema_is_kept(case: Any, served: str, secret: str) -> None:
    case.call_and_validate(base_url=served, headers={"Authorization": f"Bearer {secret}"})
