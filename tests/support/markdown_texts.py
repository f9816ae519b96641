"""Texts and bounds for the tests of chunking: Markdown with everything that is easily misread, and anything else."""

from hypothesis import strategies as st

WORD = st.sampled_from(
    ["word", "Étude", "3.5", "e.g.", "end.", "漢字。", "ภาษา", "👩‍👧", "e\u0301", "-", "x" * 40, "#", "`"]
)
SENTENCE = st.lists(WORD, min_size=1, max_size=12).map(" ".join)
HEADING = st.builds(lambda level, title: f"{'#' * level} {title}", st.integers(1, 6), WORD | st.just(""))
UNDERLINED = st.builds("{}\n{}".format, SENTENCE, st.sampled_from(["===", "-", "---"]))
FENCE = st.builds(
    lambda mark, lines: "\n".join([mark, *lines, mark]),
    st.sampled_from(["```", "~~~~"]),
    st.lists(SENTENCE | HEADING | st.just(""), max_size=8),
)
COMMENT = st.builds("<!-- {}\n{}\n-->".format, WORD, HEADING)
LIST = st.lists(SENTENCE.map("- {}".format), min_size=1, max_size=5).map("\n".join)
OTHERS = st.sampled_from(["", "\t", "---", "> quote", "    code"])
BLOCK = SENTENCE | HEADING | UNDERLINED | FENCE | COMMENT | LIST | OTHERS
GAP = st.sampled_from(["\n\n", "\n", "\r\n", "\r\r"])
MARKDOWN = st.builds(lambda gap, blocks: gap.join(blocks), GAP, st.lists(BLOCK, max_size=20))
# The marks of reStructuredText and of source code.
# fmt: off
MARKS = st.sampled_from(
    [
        "Title\n=====", "====\nTop\n====", "so::", "list:", "    code\n\n    more", ".. note::",
        ".. code-block:: python", "==  ==", "    ```", "# note", "[section]", ".. py:class:: A(b)", ".. _label:",
        "   body", "==  ==\na   b\n==  ==\nc   d\n==  ==", "* item", "1. one", "class A:", "CREATE TABLE t (",
        "    def f(self):", "        return 1", "@d", "fn g() {", "}", "int h(void)\n{", "/* a", "b */", '"""',
        "| a | b |\n|---|---|\n| c | d |", "+--+\n| a|\n+==+\n| b|\n+--+",
    ]
)
# fmt: on
STRUCTURES = ("plain", "markdown", "restructuredtext", "code:py", "code:rs", "code:rb", "code:sql", "code:toml")
MARKED = st.lists(MARKS | SENTENCE | st.just(""), max_size=30).map("\n".join)
TEXT = MARKDOWN | MARKED | st.text(st.characters(exclude_categories=["Cs"]), max_size=200)


@st.composite
def bounds(draw):
    most = draw(st.integers(1, 40))
    return {
        "max_tokens": most,
        "overlap_tokens": draw(st.integers(0, (most - 1) // 2)),
        "min_tokens": draw(st.integers(0, most)),
        "max_bytes": draw(st.integers(4, 300)),
    }
