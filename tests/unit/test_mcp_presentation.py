"""What an assistant is shown: results in which everything is seen, and errors that name tools."""

from hypothesis import example, given
from hypothesis import strategies as st

from semlex.server.mcp.access import OFFERS
from semlex.server.mcp.presentation import FOR_THE_PERSON, TOOLS, cleaned, in_tools, tool_result

ALL = {offer.name for offer in OFFERS}
READING = {offer.name for offer in OFFERS if offer.reads_only}


def test_commands_are_tools_where_there_are_some():
    for message, told in [
        ("damaged; rebuild it with: semlex maintain reindex", "damaged; rebuild it with: the tool reindex_collection"),
        ("semlex index FOLDER makes one", "the tool index_folder makes one"),
        ("read: semlex index '/a b/c.md' --collection x (a file)", "read: the tool index_folder (a file)"),
        ("semlex maintain reindex --collection x, then go on", "the tool reindex_collection, then go on"),
        ("semlex maintain optimize merges them", "the tool optimize_search merges them"),
        ("semlex fields add year number", f"semlex fields add year number{FOR_THE_PERSON}"),
        ("semlex models fill --collection x", f"semlex models fill --collection x{FOR_THE_PERSON}"),
        ("nothing to do", "nothing to do"),
        ("semlexx index", "semlexx index"),
    ]:  # fmt: skip
        assert in_tools(message, ALL) == told
    message = "damaged; rebuild it with: semlex maintain reindex"
    assert in_tools(message, READING) == message + FOR_THE_PERSON
    assert set(TOOLS.values()) <= ALL


# --- results ----------------------------------------------------------------------------------------------------------

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
