"""What is said of texts that a model cuts: enough, and not too much."""

from semlex.models.tokenizer import CutTexts


def test_nothing_is_said_while_nothing_is_cut(caplog):
    texts = CutTexts("texts", "org/model")
    texts.add(0, 0, "max_length=128 tokens")
    texts.add(20, 0, "max_length=128 tokens")
    assert (texts.count, caplog.messages) == (0, [])


def test_the_first_is_logged_and_then_every_tenfold(caplog):
    texts = CutTexts("texts", "org/model")
    for _ in range(60):
        texts.add(40, 20, "max_length=128 tokens")
    assert texts.count == 1200
    assert caplog.messages == [
        f"{found} texts for org/model so far did not fit into max_length=128 tokens and were cut"
        for found in ("20 of 40", "200 of 400")
    ]


def test_ten_times_the_first_is_reached_only_by_texts_that_are_cut(caplog):
    texts = CutTexts("texts", "org/model")
    texts.add(1, 1, "x")
    texts.add(8, 8, "x")
    texts.add(1_000, 0, "x")
    assert len(caplog.messages) == 1
    texts.add(1, 1, "x")
    assert caplog.messages[1].startswith("10 of 1010 texts")
