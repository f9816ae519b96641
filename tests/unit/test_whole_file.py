"""Files that are replaced as a whole."""

import pytest

from semlex.whole_file import whole_file


@pytest.mark.parametrize("old", [None, "old\n"])
def test_a_file_is_replaced_at_the_end_or_unchanged(tmp_path, old):
    path = tmp_path / "file"
    if old is not None:
        path.write_text(old)
        path.chmod(0o640)
    with pytest.raises(UnicodeEncodeError), whole_file(path) as file:
        file.writelines(("half of ", "\ud800"))
    assert [one.read_text() for one in tmp_path.iterdir()] == ([] if old is None else [old])
    with whole_file(path) as file:
        file.write("é\n")
        assert path.exists() == (old is not None)
    assert [one.read_bytes() for one in tmp_path.iterdir()] == ["é\n".encode()]
    assert path.stat().st_mode & 0o777 == (0o600 if old is None else 0o640)
