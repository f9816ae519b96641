"""Which headings a checkup asks, and what is left of texts without them."""

import re
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from semlex._core import Analyzer
from semlex.diagnostics.checkup_sections import MAX_REPEATS, choose, docstring_of, question_of, without, words_of
from semlex.store.query.surroundings import SectionChunk, SectionRow


def chunk(text, *path, context=None):
    return SectionChunk((UUID(int=1), "c"), "a.md", None, " > ".join(path) if context is None else context, text, path)


def test_headings_go_from_texts_and_from_above():
    for heading, text, rest in [
        ("Rotate keys", "## Rotate keys\n\nEvery day.", "\nEvery day."),
        ("Rotate keys", "## Rotate *keys* ##\nEvery day.", "Every day."),
        ("Rotate keys", "## [Rotate keys](#rotation)\nEvery day.", "Every day."),
        ("Rotate keys", "## Rotate keys {#how-to .wide}\nEvery day.", "Every day."),
        ("Rotate keys", "Rotate keys\n===========\n\nRotate keys daily.", "\nRotate keys daily."),
        ("Rotate keys", "***********\nRotate keys\n***********\nDaily.", "Daily."),
        ("rotate(keys)", ".. function:: rotate(keys)\n\n   Daily.", "\n   Daily."),
        ("Rotate keys", ".. _rotate keys:\n\nDaily.", "\nDaily."),
        ("Rotate keys", "Before.\n-----\nDaily.", "Before.\n-----\nDaily."),
        ("one\ntwo", "# one\ntwo\nthree", "# \nthree"),
        ("x" * 256, "# " + "x" * 300 + "\nbody", "body"),
    ]:  # fmt: skip
        assert without(heading, chunk(text, heading))[1] == rest
    for path, context, rest in [
        (("A", "B"), "A > B", "A"), (("A", "B"), "Title > A > B", "Title > A"),
        (("B",), "B > B", ""),
        (("A", "B"), "A > B\nAs follows:", "A\nAs follows:"),
        (("B",), "B\nAs follows:", "As follows:"),
        (("A > B", "B"), "A > B > B", "A > B"),
        (("A", "B"), "", ""), (("A", "B"), "written by hand > b", "written by hand"),
    ]:  # fmt: skip
        assert without("B", chunk("text", *path, context=context))[0] == rest
    for code, line in [
            ('def f():\n    """Boils water."""\n', "Boils water."),
            ('def f():\n    r"""\n    Boils water.\n\n    More.\n    """\n', "Boils water."),
            ("class A:\n    '''Boils water.'''\n", "Boils water."),
            ('x = 3  # """no"""\n', ""),
            ('def f():\n    return """no"""\n', ""),
        ]:  # fmt: skip
        assert docstring_of([chunk(code)]) == line


@given(heading=st.text(max_size=40), text=st.text(max_size=200), title=st.text(max_size=20))
def test_what_stays_was_there(heading, text, title):
    context, rest = without(heading, chunk(text, heading, context=f"{title} > {heading}"))
    kept = iter(text)
    assert all(character in kept for character in rest)  # in its order
    assert len(context) <= len(f"{title} > {heading}")
    words = words_of(heading)
    if words and len(heading.splitlines()) == 1:
        assert all(words_of(line) != words for line in rest.splitlines())


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=1200) | st.text('ab -"«»“”„\n\t', max_size=40))
def test_a_question_demands_and_excludes_nothing(heading):
    question = question_of(heading)
    query = Analyzer("english").query(question)
    assert not query.phrases
    assert not query.excluded
    assert len(question.encode()) <= 4096
    assert not re.search(r"[\x00-\x1f\x7f]", question)


rows = st.lists(
    st.builds(
        lambda name, path, number, count: SectionRow("s", name, path, (UUID(int=number),) if path else (), count),
        st.sampled_from(["a.md", "b.md", "k.py"]),
        st.lists(st.sampled_from(["One", "Two", "***", "notes", "Notes"]), max_size=3).map(tuple),
        st.integers(1, 3),
        st.integers(1, 8),
    ),
    max_size=30,
)


@given(rows=rows, seed=st.integers(0, 5))
def test_every_heading_is_asked_or_counted(rows, seed):
    choice = choose(rows, seed)
    assert choice.headings == len(choice.sections) + choice.repeated + choice.wide + choice.wordless
    assert choice.chunks.total() == sum(row.chunks for row in rows)
    asked = [words_of(one.path[-1]) for one in choice.sections if not one.is_code]
    assert all(asked.count(words) <= MAX_REPEATS for words in asked)
    assert choose(rows[::-1], seed).sections == choice.sections
