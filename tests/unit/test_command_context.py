"""Options that several commands have: put into the signature that Typer reads, handed over as one object."""

import inspect
from typing import get_args

import pytest

from semlex.cli.context import OUTPUT, SERVER, Context, with_context
from semlex.cli.options import AsJson


def parameters(command):
    return list(inspect.signature(command).parameters)


def test_a_commands_own_options_come_first_or_where_the_dots_are():
    def command(context, words, *, exact=False):
        """Does nothing."""

    first = with_context("collection", *SERVER)(command)
    assert parameters(first) == ["words", "exact", "collection", *SERVER, *OUTPUT]
    assert parameters(with_context("collection", ..., *SERVER)(command)) == [
        "collection", "words", "exact", *SERVER, *OUTPUT
    ]  # fmt: skip
    assert (first.__name__, first.__doc__) == ("command", "Does nothing.")
    shared = inspect.signature(first).parameters["as_json"]
    assert (get_args(shared.annotation), shared.default) == (get_args(AsJson), False)


@pytest.mark.parametrize(("names", "model"), [(("collection",), "none"), (SERVER, None)])
def test_a_command_that_opens_a_collection_and_names_no_model_needs_none(names, model):
    seen = []

    @with_context(*names)
    def command(context):
        seen.append(context)

    command(**dict.fromkeys(names), as_json=True, shown_fields=None, header=True)
    assert (seen[0].embedding_model, seen[0].as_json) == (model, True)


def test_an_option_that_is_no_shared_one_is_refused_when_the_command_is_made():
    with pytest.raises(KeyError, match="colection"):

        @with_context("colection")
        def command(context):
            del context


def test_a_value_is_json_or_text(capsys):
    shown = []
    Context().emit({"a": 1}, lambda: shown.append("text"))
    assert (shown.pop(), capsys.readouterr().out) == ("text", "")
    Context(as_json=True).emit([{"a": 1}, {"a": 2}], lambda: shown.append("text"))
    assert (shown, capsys.readouterr().out) == ([], '{"a": 1}\n{"a": 2}\n')
    Context(as_json=True).emit(Context(collection="c"), lambda: shown.append("text"))
    assert capsys.readouterr().out.startswith('{"collection": "c", "database_url": null, ')
