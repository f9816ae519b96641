"""Requests that the schema allows are answered, and those that it forbids are refused: schemathesis.

Its coverage of every keyword is the same in each run; ``--random`` and ``--full`` draw further requests.
"""

import random
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import schemathesis
from hypothesis import assume, given, seed, settings
from hypothesis import strategies as st
from requests import Session
from schemathesis.generation.modes import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection

from semlex.errors import SemlexError
from semlex.filters.forms import filter_tree
from semlex.options.search import MAX_DEADLINE_SECONDS
from semlex.server.tokens import TokenFile
from tests.journeys.server.conftest import DOCUMENTS
from tests.support.http_server import COLLECTION, app_of, in_a_thread, sync_client_of

pytestmark = pytest.mark.slow
NAME = "^[a-z_][a-z0-9_]{0,47}$"
# Pattern, format or maximum in the description -> a rule for what is really good. Of the rules behind a format the
# description has only the length, one name is that of a collection, and a short deadline is one for the machine, too.
GOOD = {
    NAME: {"pattern": f"^{COLLECTION}$"},
    "question": {"pattern": "[!-~]"},
    "word": {"pattern": "[!-~]"},
    "id": {"pattern": "^d[01]$"},
    "document": {"pattern": "^d[01]$"},
    "filter": {"pattern": "^(year|month) (==|>=|<) (0|[1-9][0-9]{0,3})$"},
    "language": {"pattern": "^(german|de|simple)$"},
    "field": {"pattern": "^(@source|year)$"},
    MAX_DEADLINE_SECONDS: {"minimum": 60},
}
# Nothing that they name exists: no such list, no such job, no model, no folder that may be read.
UNANSWERED = {
    "POST /v1/search/page", "GET /v1/jobs/{job_id}", "POST /v1/jobs/{job_id}/cancel", "POST /v1/jobs/{job_id}/retry",
    "POST /v1/rerank", "POST /v1/index",
}  # fmt: skip


def with_rules(description, rules):
    """The description with further rules, and without formats: what they mean only semlex knows."""
    if isinstance(description, list):
        return [with_rules(one, rules) for one in description]
    if not isinstance(description, dict):
        return description
    found = {key: with_rules(value, rules) for key, value in description.items()}
    known = found.get("pattern", found.get("format", found.get("maximum")))
    if known != "date-time" and isinstance(known, str):
        found.pop("format", None)
    return found | rules.get(known, {}) if isinstance(known, str | int | float) else found


# Whether there are tokens is in the description; their file need not be there.
DESCRIPTION = app_of(token_file=Path("tokens")).openapi()


def schema_of(mode, rules):
    made = schemathesis.openapi.from_dict(with_rules(DESCRIPTION, rules))
    made.config.generation.update(modes=[mode], allow_x00=False)
    made.config.checks.negative_data_rejection.expected_statuses = ["4xx"]
    return made


POSITIVE, NEGATIVE = schema_of(GenerationMode.POSITIVE, GOOD), schema_of(GenerationMode.NEGATIVE, {})
LABELS = [found.ok().label for found in POSITIVE.get_all_operations()]


def can_be_good(case):
    """Whether no rule is broken that a schema cannot say: of a filter as an object, or of a vector."""
    body = case.body if isinstance(case.body, dict) else {}
    try:
        if isinstance(body.get("filters"), dict):
            filter_tree(body["filters"])
    except SemlexError:
        return False
    with np.errstate(over="ignore"):
        length = np.square(np.asarray(body.get("vector") or [1], dtype=np.float32)).sum()
    return bool(np.finfo(np.float32).tiny <= length <= np.finfo(np.float32).max)


def cases(schema, label):
    operation = schema.find_operation_by_label(label)
    generation = schema.config.generation_for(operation=operation, phase="coverage")
    for case in schema.iter_coverage_cases(operation, generation_modes=generation.modes, generation_config=generation):
        if schema is NEGATIVE or can_be_good(case):
            yield case


@pytest.fixture(scope="module")
def token_file(tmp_path_factory):
    return tmp_path_factory.mktemp("tokens") / "tokens.json"


@pytest.fixture(scope="module")
def session(token_file):
    with Session() as opened:
        opened.trust_env = False  # else it reads all variables of the environment before each request
        opened.headers["Authorization"] = f"Bearer {TokenFile(token_file).add('all', 'admin')}"
        yield opened


@contextmanager
def serving(url, token_file):
    with sync_client_of(url) as client:
        client.collection(COLLECTION).add_documents(DOCUMENTS)
    with in_a_thread(url, token_file=token_file, rate=0) as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture(scope="module")
def shared(new_database, token_file):
    with serving(new_database(), token_file) as address:
        yield address


@pytest.fixture
def address(label, request, token_file):
    """What one operation deletes, the others would miss."""
    if label.startswith("DELETE"):
        with serving(request.getfixturevalue("database_url"), token_file) as address:
            yield address
    else:
        yield request.getfixturevalue("shared")


@pytest.mark.parametrize("label", LABELS)
def test_the_schema_is_kept(label, address, session):
    """At every bound of every value, from both sides."""
    answered, refused = (
        {case.call_and_validate(address, session).status_code for case in cases(schema, label)}
        for schema in (POSITIVE, NEGATIVE)
    )
    assert any(status < 300 for status in answered) == (label not in UNANSWERED)
    assert any(status >= 400 for status in refused)


if settings.get_current_profile_name() in ("random", "full"):

    @pytest.mark.parametrize("label", LABELS)
    def test_the_schema_is_kept_by_requests_that_are_drawn(label, address, session):
        @seed(random.getrandbits(64))
        @settings(max_examples=min(settings.default.max_examples, 1_000))
        @given(st.data())
        def ask(data):
            mode = data.draw(st.sampled_from([GenerationMode.POSITIVE, GenerationMode.NEGATIVE]))
            schema = POSITIVE if mode is GenerationMode.POSITIVE else NEGATIVE
            case = data.draw(schema.find_operation_by_label(label).as_strategy(generation_mode=mode))
            assume(schema is NEGATIVE or can_be_good(case))
            # What is drawn to be wrong may be good by chance.
            case.call_and_validate(address, session, excluded_checks=[negative_data_rejection])

        ask()
