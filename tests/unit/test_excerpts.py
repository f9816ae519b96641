"""Excerpts: whole sentences, what was left out is shown, and no marks of a format."""

import re

from hypothesis import given
from hypothesis import strategies as st

from semlex import _core
from semlex.store.query.chunks import excerpts_of
from semlex.types.display import marked_parts
from tests.support import plain_excerpts
from tests.support.plain_excerpts import EXCERPT_CHARACTERS, LONGEST_SENTENCE, MAX_LINE

ENGLISH = _core.Analyzer("english")
GUIDE = """.. _how-to-log-a-user-in:

How to log a user in
--------------------

If you have an authenticated user you want to attach to the current session, this is done
with a function. It takes two arguments, and is **very** easy to use in a view.

.. code-block:: python
   :linenos:

    def my_view(request, **kwargs):
        user = authenticate(request)

        login(request, user)

.. note:: Sessions are kept. They end with the browser.

.. toctree::
   :maxdepth: 2
"""
TIP = """:::{tip}
:class: wide
Rotate a key every ninety days. Then tell people.
:::

(label)=

```sh
rotate --key
```
"""


def excerpt_of(query, text):
    return excerpts_of(query, [text], [None], lambda _: ENGLISH)[0][0]


CODE = "    def my_view(request, **kwargs):\n        user = authenticate(request)\n\n        login(request, user)\n"
SESSION = (
    "If you have an authenticated user you want to attach to the **current** **session**, this is done\n"
    f"with a function. It takes two arguments, and is **very** easy to use in a view.\n{CODE}…"
)
LOGIN = f"…\n{CODE.replace('login', '**login**')}Sessions are kept. They end with the browser."


def test_sentences_long_lines_and_places():
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
        ("One.\nA **key**.", text.index("key")),
        ("One.", 2), ("a **key**", 4), ("none", None),
    ]  # fmt: skip


BLOCKS = st.sampled_from(
    [
        *("One key. ", "Two gates are\nhere. ", "\n\n", "# Heading\n", "- item key\n", ".. note:: A key.\n"),
        *(":::{tip}\n", "| a | key |\n", "**bold key** ", "key*", "a long word of it ", "\r\n", "Use::\n\n"),
        *("```sh\nkey --x **2\n```\n", "    indented key\n"),
    ]
)


# Words that are parted by blanks and marks, so that a word is a word of plain Python, too.
WORDS = st.text("abéß ", max_size=9).map(lambda text: f"{text} ")
LINES = st.sampled_from(
    [
        *("\n", "\n", "   ", "\t", "key: ", "..", ".. ", "...", ".. code:: c\n\n", "   :option: key\n", ":c-d:\n"),
        *(".. c:note:: key\n", ".. x::y::: ", ".. [1] ", ".. []\n", ".. tabs::one ", ".. _gate: k\n\n", ":é: \n"),
        *("(a.b-c:d)=\n", "(key)=x\n", "()=\n", "[gate]: key\n", "[gate]:\n", "[]: key\n", "<!-- key\n", "gate -->\n"),
        *("{% key %}\n", "{%}\n", "{{< gate >}}\n", "{{%}}\n", "{{ key }}\n", "+++\n", "---\n", "--- key\n", "+++ \n"),
        *("    one()\n" * 9, "    keys()\n    gate()\n", "key " * 120, "語" * 401 + " ", "__ gate\n", "__ "),
        *(". ", "! ", "…\n", "**", "Gate ", "KEYS "),
    ]
)


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
