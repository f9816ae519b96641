"""What ``--fields`` chooses of objects."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.cli.output import Columns, choosing, json_text
from semlex.errors import ConfigurationError

NAME = st.sampled_from(["a", "b", "c"])
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('x\t\n"\x1b'), max_size=4),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(NAME, inside, max_size=3),
    max_leaves=8,
)
OBJECT = st.dictionaries(NAME, VALUE, min_size=1, max_size=3)


NAMES = st.lists(NAME, min_size=1, max_size=3, unique=True)


def printed(columns, *values):
    return [*(line for value in values for line in columns.lines(value)), *columns.end()]


@pytest.mark.slow
@given(values=st.lists(OBJECT, max_size=5), names=NAMES, header=st.booleans())
def test_lines_have_the_keys_of_the_objects_that_have_them(values, names, header):
    having = [value for value in values if value.keys() >= set(names)]
    if values and not having:
        with pytest.raises(ConfigurationError, match="--fields"):
            printed(Columns(tuple(names), as_json=True, header=header), *values)
        return
    objects = [json.loads(line) for line in printed(Columns(tuple(names), as_json=True, header=header), *values)]
    assert objects == [{name: value[name] for name in names} for value in having]
    lines = printed(Columns(tuple(names), as_json=False, header=header), *values)
    assert len(lines) == len(having) + header
    assert all(line.count("\t") == len(names) - 1 and line.isprintable() == ("\t" not in line) for line in lines)


def test_keys_inside_of_objects_and_lists():
    value = {"metadata": {"year": 2020, "a.b": 1}, "path": ["x", "y"], "hits": [{"id": 1}, {"id": 2}, {}]}
    columns = Columns(("metadata.year", "metadata.a.b", "path.1", "path.7", "hits.id"), as_json=False, header=False)
    assert printed(columns, value) == ["2020\t1\ty\t\t[1, 2]"]


def test_what_no_object_has_is_told(capsys):
    columns = Columns(("id", "metadata.yaer"), as_json=False, header=True)
    assert printed(columns, {"id": "x", "metadata": {"year": 1}}) == ["id\tmetadata.yaer", "x\t"]
    assert "'metadata.yaer': did you mean metadata.year" in capsys.readouterr().err
    with pytest.raises(ConfigurationError, match="'idd': did you mean id"):
        printed(Columns(("idd",), as_json=False, header=True), {"id": 1})
    with pytest.raises(ConfigurationError, match="no line of --json has all of"):
        printed(Columns(("a", "b"), as_json=False, header=True), {"a": 1}, {"b": 1})


def test_warnings_of_lines_that_are_left_out_are_told(capsys):
    columns = Columns(("id",), as_json=True, header=True)
    assert printed(columns, {"id": 1}, {"type": "summary", "warnings": ["words alone\nanswered"]}) == ['{"id": 1}']
    assert "note: words alone\\nanswered" in capsys.readouterr().err


def test_nothing_found_is_a_header():
    assert printed(Columns(("id", "line"), as_json=False, header=True)) == ["id\tline"]
    assert printed(Columns(("id", "line"), as_json=False, header=False)) == []
    assert printed(Columns(("id", "line"), as_json=True, header=True)) == []


def test_names_stand_between_commas():
    with choosing(" id, line ,,id", as_json=False, header=True) as columns:
        assert columns is not None
        assert columns.names == ("id", "line")
    with pytest.raises(ConfigurationError, match="commas"), choosing(" ,", as_json=False, header=True):
        pass


def test_control_characters_stay_inside_json():
    assert json_text({"a": "\x1b[2J\u202e"}) == '{"a": "\\u001b[2J\\u202e"}'
