"""Excerpts are whole sentences without marks of a format, and headings go from texts that a checkup asks."""

import re
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from semlex import _core
from semlex._core import Analyzer
from semlex.diagnostics.checkup_sections import MAX_REPEATS, choose, docstring_of, question_of, without, words_of
from semlex.store.query.chunks import excerpts_of
from semlex.store.query.surroundings import SectionChunk, SectionRow
from semlex.types.display import marked_parts
from tests.support import plain_excerpts
from tests.support.plain_excerpts import EXCERPT_CHARACTERS, LONGEST_SENTENCE, MAX_LINE

ENGLISH = _core.Analyzer("english")
CODE = "    def my_view(request, **kwargs):\n        user = authenticate(request)\n\n        login(request, user)\n"
PROSE = (
    "If you have an authenticated user you want to attach to the current session, this is done\n"
    "with a function. It takes two arguments, and is **very** easy to use in a view.\n"
)
GUIDE = (
    f".. _how-to-log-a-user-in:\n\nHow to log a user in\n--------------------\n\n{PROSE}\n"
    f".. code-block:: python\n   :linenos:\n\n{CODE}\n"
    ".. note:: Sessions are kept. They end with the browser.\n\n.. toctree::\n   :maxdepth: 2\n"
)
TIP = (
    ":::{tip}\n:class: wide\nRotate a key every ninety days. Then tell people.\n:::\n\n(label)=\n\n"
    "```sh\nrotate --key\n```\n"
)


def excerpt_of(query, text):
    return excerpts_of(query, [text], [None], lambda _: ENGLISH)[0][0]


SESSION = f"{PROSE.replace('current session', '**current** **session**')}{CODE}…"
LOGIN = f"…\n{CODE.replace('login', '**login**')}Sessions are kept. They end with the browser."


def test_sentences_and_headings():
    for query, text, wanted in [
        ("current session", GUIDE, SESSION), ("browsers", GUIDE, "… They end with the **browser**."),
        ("login", GUIDE, LOGIN),
        ("rotating", TIP, "**Rotate** a key every ninety days. Then tell people.\n**rotate** --key"),
        ("nothing", "No such word. Here.", "No such word. Here."),
        (None, "# Title\n\nOne. Two.", "One. Two."), (None, "# Title", "# Title"),
        ("gate", "a " * 300 + "gate " + "b " * 300, None),
        ("stars", "Two **stars** and *stars*.", "Two **stars** and ***stars***."),
    ]:  # fmt: skip
        made = excerpt_of(query, text)
        if wanted is None:
            assert made.startswith("… a a") and made.endswith("b b …") and "**gate**" in made  # noqa: PT018
            assert len(made) <= EXCERPT_CHARACTERS + 10
        else:
            assert made == wanted
    # If every blank were read again for each blank, it would not end within the limit of a test.
    assert excerpt_of("gate", " " * 2_000_000 + "a gate --> b") == "a **gate** --> b"
    text = "Nobody comes. " * (MAX_LINE // 14 + 1) + "A gate."
    assert excerpt_of("gate", f".. {text}") == "A **gate**."
    assert excerpt_of("gate", f".. {text[-1000:]}\n\nA key.") == "A key."
    text = "# Keys\n\nOne.\n\nA key.\n"
    assert excerpts_of("keys", [text, "# Keys\n\nOne.", "a **key**", "none"], [None] * 4, lambda _: ENGLISH) == [
        ("One.\nA **key**.", text.index("key")), ("One.", 2), ("a **key**", 4), ("none", None),
    ]  # fmt: skip
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
        (("B",), "B > B", ""), (("A", "B"), "A > B\nAs follows:", "A\nAs follows:"),
        (("B",), "B\nAs follows:", "As follows:"), (("A > B", "B"), "A > B > B", "A > B"),
        (("A", "B"), "", ""), (("A", "B"), "written by hand > b", "written by hand"),
    ]:  # fmt: skip
        assert without("B", chunk("text", *path, context=context))[0] == rest
    for code, line in [
        ('def f():\n    """Boils water."""\n', "Boils water."),
        ('def f():\n    r"""\n    Boils water.\n\n    More.\n    """\n', "Boils water."),
        ("class A:\n    '''Boils water.'''\n", "Boils water."),
        ('x = 3  # """no"""\n', ""),
        ('def f():\n    return """no"""\n', ""),
    ]:
        assert docstring_of([chunk(code)]) == line


BLOCKS = st.sampled_from([
    "One key. ", "Two gates are\nhere. ", "\n\n", "# Heading\n", "- item key\n", ".. note:: A key.\n",
    ":::{tip}\n", "| a | key |\n", "**bold key** ", "key*", "a long word of it ", "\r\n", "Use::\n\n",
    "```sh\nkey --x **2\n```\n", "    indented key\n",
])  # fmt: skip
# Words that are parted by blanks and marks, so that a word is a word of plain Python, too.
WORDS = st.text("abéß ", max_size=9).map(lambda text: f"{text} ")
LINES = st.sampled_from([
    "\n", "\n", "   ", "\t", "key: ", "..", ".. ", "...", ".. code:: c\n\n", "   :option: key\n", ":c-d:\n",
    ".. c:note:: key\n", ".. x::y::: ", ".. [1] ", ".. []\n", ".. tabs::one ", ".. _gate: k\n\n", ":é: \n",
    "(a.b-c:d)=\n", "(key)=x\n", "()=\n", "[gate]: key\n", "[gate]:\n", "[]: key\n", "<!-- key\n", "gate -->\n",
    "{% key %}\n", "{%}\n", "{{< gate >}}\n", "{{%}}\n", "{{ key }}\n", "+++\n", "---\n", "--- key\n", "+++ \n",
    "    one()\n" * 9, "    keys()\n    gate()\n", "key " * 120, "語" * 401 + " ", "__ gate\n", "__ ",
    ". ", "! ", "…\n", "**", "Gate ", "KEYS ",
])  # fmt: skip


@given(
    texts=st.lists(st.lists(st.one_of(BLOCKS, LINES, LINES, WORDS), max_size=40).map("".join), max_size=3),
    words=st.sets(st.sampled_from(["key", "keys", "gate", "gates", "ab"])),
)
def test_excerpts_are_those_of_plain_python(texts, words):
    simple = _core.Analyzer("simple", stop_words=False)
    plain = [plain_excerpts.excerpt(text, plain_excerpts.places(text, words)) for text in texts]
    assert _core.excerpts(texts, simple, sorted(words)) == plain


@given(st.lists(BLOCKS, max_size=60).map(lambda blocks: "".join([*blocks, "\n\nOne end."])))
def test_an_excerpt_is_parts_of_the_text_in_their_order(text):
    made = excerpt_of("keys and gates", text)
    plain = "".join(piece for piece, _ in marked_parts(made, text))
    at = 0
    for part in re.split(r" … |\n|\A… | …\Z", plain):
        if part.strip() and part.strip() != "…":
            found = text.find(part.rstrip("\r"), at)
            assert found >= at, (part, made)
            at = found + len(part.rstrip("\r"))
    assert not re.search(r"(?m)^\s*(?:```|:::|\.\. )", plain)
    assert len(plain) <= 2 * (EXCERPT_CHARACTERS + LONGEST_SENTENCE)
    assert made


# --- headings of a checkup --------------------------------------------------------------------------------------------
def chunk(text, *path, context=None):
    return SectionChunk((UUID(int=1), "c"), "a.md", None, " > ".join(path) if context is None else context, text, path)


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


row = st.builds(
    lambda name, path, number, count: SectionRow("s", name, path, (UUID(int=number),) if path else (), count),
    st.sampled_from(["a.md", "b.md", "k.py"]),
    st.lists(st.sampled_from(["One", "Two", "***", "notes", "Notes"]), max_size=3).map(tuple),
    *(st.integers(1, 3), st.integers(1, 8)),
)


@given(rows=st.lists(row, max_size=30), seed=st.integers(0, 5))
def test_every_heading_is_asked_or_counted(rows, seed):
    choice = choose(rows, seed)
    assert choice.headings == len(choice.sections) + choice.left_out.total()
    assert choice.chunks.total() == sum(row.chunks for row in rows)
    asked = [words_of(one.path[-1]) for one in choice.sections if not one.is_code]
    assert all(asked.count(words) <= MAX_REPEATS for words in asked)
    assert choose(rows[::-1], seed).sections == choice.sections
