"""Results of tools: whatever documents hold, nothing in them is what nobody sees."""

from hypothesis import example, given
from hypothesis import strategies as st

from semlex.server.mcp.presentation import cleaned, tool_result

texts = st.text(max_size=30) | st.text(st.characters(max_codepoint=127), max_size=30)


@given(text=texts, metadata=st.dictionaries(texts, texts | st.lists(texts, max_size=2), max_size=3))
@example(text="a\rb", metadata={})
@example(text="a\x1bb", metadata={})
@example(text="a\\rb", metadata={"\x0c": "\x08"})
@example(text="é\u200bü", metadata={})
def test_the_structure_is_cleaned(text, metadata):
    """The slow twin cleans every result."""
    value = {"collection": "a", "chunk": {"content": text, "metadata": metadata, "page": None}, "start": 0}
    assert tool_result(value, text).structured_content == cleaned(value)
