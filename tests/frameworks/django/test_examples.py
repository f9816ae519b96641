"""The project of Django migrates, serves and searches."""

from tests.support.example_servers import check_articles, running


def test_the_example_serves(bare_database_url):
    command = ("manage.py", "runserver", "--noreload", "{port}")
    with running("django", bare_database_url, *command, before=[("manage.py", "migrate")]) as example:
        check_articles(example)
