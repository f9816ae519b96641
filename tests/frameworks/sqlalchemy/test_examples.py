"""The programs of the pages on SQLAlchemy run; the projects of FastAPI and Flask serve and search."""

import pytest

from tests.support.documented_programs import documentation_test
from tests.support.example_servers import check_articles, running

test_example_runs = documentation_test("sqlalchemy")
COMMANDS = {
    "fastapi": ("-m", "uvicorn", "shop:app", "--port", "{port}"),
    "flask": ("-m", "flask", "--app", "shop", "run", "--port", "{port}"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_serves(bare_database_url, name):
    with running(name, bare_database_url, *COMMANDS[name]) as example:
        check_articles(example)
