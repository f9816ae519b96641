"""Judgements that are noted one after another are read again as they were."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from semlex.errors import ConfigurationError
from semlex.evaluation.datasets import (
    HEADER,
    QRELS_FILE,
    QUERIES_FILE,
    JudgementFolder,
    is_column,
    question_text,
    read_judged_set,
)

questions = st.text(max_size=30)
ids = st.text(max_size=20)
notes = st.lists(st.tuples(questions, ids, st.none() | st.integers(0, 3)), max_size=20)


@given(notes)
def test_what_was_noted_last_is_what_is_read(tmp_path_factory, given):
    folder = JudgementFolder(tmp_path_factory.mktemp("judged") / "new")
    wanted = {}
    for question, judged, value in given:
        text = question_text(question)
        if not text or not is_column(judged):
            with pytest.raises(ConfigurationError):
                folder.note(question, {judged: value})
            continue
        own = wanted.setdefault(text, {})
        own.pop(judged, None)
        if value is not None:
            own[judged] = value
        assert folder.note(question, {judged: value}) == own
    assert folder.read() == {text: own for text, own in wanted.items() if own}


def test_the_files_are_those_of_eval(tmp_path):
    folder = JudgementFolder(tmp_path)
    folder.note("how\tare keys\nrotated?", {"a b": 3, "c": 0})
    folder.note("where are they?", {"c": 1})
    folder.note("how are keys rotated?", {"c": None})
    assert (tmp_path / QUERIES_FILE).read_text("utf-8") == "q1\thow are keys rotated?\nq2\twhere are they?\n"
    assert (tmp_path / QRELS_FILE).read_text("utf-8") == f"{HEADER}\nq1\ta b\t3\nq2\tc\t1\n"
    found = read_judged_set(tmp_path)
    assert found.judgements == {"q1": {"a b": 3}, "q2": {"c": 1}}
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([QUERIES_FILE, QRELS_FILE])


@pytest.mark.parametrize("value", [-1, 4, 1.0, True])
def test_a_relevance_is_a_whole_number_from_0_to_3(tmp_path, value):
    with pytest.raises(ConfigurationError, match="relevance"):
        JudgementFolder(tmp_path).note("q", {"a": value})
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        JudgementFolder(tmp_path / "file").note("q", {"a": 1})
