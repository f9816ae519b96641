"""Cross-encoders as ONNX files, run on the CPU without torch: they read the query and a text together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from semlex.errors import ConfigurationError, ModelError
from semlex.forks import new_rlock
from semlex.models.files import ModelFolder, find_model
from semlex.models.local.onnx_model import Batch, OnnxModel, require_onnx
from semlex.models.model_names import ONNX_PREFIX, split_name
from semlex.models.tokenizer import CutTexts, TextTokenizer, open_pair_tokenizer
from semlex.reranking.base import WITHOUT_HUB, CheckedReranker, probabilities

if TYPE_CHECKING:
    from numpy.typing import NDArray


OUTPUT = "logits"


class OnnxReranker(CheckedReranker):
    """Score candidates with an ONNX file of a cross-encoder, on the CPU.

    The constructor finds the model; the file is loaded at first use. Blocking, and safe for several threads. A pair
    that is too long loses the end of its text, never of the query.

    Args:
        model_name: As for `semlex.embedding.onnx.OnnxEmbedder`.
        revision: Branch, tag or commit of the hub.
        allow_download: Whether the model may be fetched from the hub.

    Raises:
        MissingExtraError: onnxruntime or tokenizers is not installed.
        ModelError: The model is not on this machine.
    """

    def __init__(self, model_name: str, *, revision: str | None = None, allow_download: bool = False) -> None:
        require_onnx("reranking with an ONNX model")
        folder = find_model(
            model_name, revision=revision, allow_download=allow_download, without_hub=WITHOUT_HUB, weights="onnx"
        )
        self._model = OnnxModel(folder, split_name(model_name)[1], (OUTPUT,))
        self._pairs: _Pairs | None = None
        self._cut = CutTexts("candidates", folder.name)
        # Held while the tokenizer is opened, never while the model computes.
        self._opening = new_rlock()

    @property
    def identity(self) -> str:
        """Return model, file and revision, in one line."""
        return f"{ONNX_PREFIX}{self._model.folder.name}#{self._model.file}@{self._model.folder.revision}"

    def close(self) -> None:
        """Release the model and its memory; a second call does nothing."""
        self._model.close()

    def _score(self, query: str, texts: list[str]) -> NDArray[np.float32]:
        logits = np.empty(len(texts))
        self._model.load()
        if texts:
            rows, types = self._encode(query, texts)
            for batch in self._model.run(rows, types):
                logits[batch.rows] = self._logits(batch)
        remedy = f"a file of full precision ({ONNX_PREFIX}{self._model.folder.name}#FILE)"
        return probabilities(logits, self._model.where, remedy)

    def _encode(self, query: str, texts: list[str]) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
        """Return token ids and token types of every pair."""
        pairs = self._load_pairs()
        (asked,) = pairs.tokenizer.ids([query])
        most = self._model.max_tokens(pairs.added)
        room = None if most is None else most - asked.size
        if room is not None and room < 1:
            raise ConfigurationError(
                f"{self._model.folder.name} reads {most} tokens of query and text together, but the query alone has "
                f"{asked.size}: shorten the query"
            )
        found = pairs.tokenizer.encode(texts, most=room)
        limit = "" if most is None else f"the {most} tokens that the model reads, query included,"
        self._cut.add(len(texts), found.cut.size, limit)
        bodies = [found[row] for row in range(len(found))]
        return [pairs.join(asked, body) for body in bodies], [pairs.types(asked, body) for body in bodies]

    def _logits(self, batch: Batch) -> NDArray[np.float64]:
        logits = batch.outputs[OUTPUT].astype(np.float64)
        if logits.shape not in {(batch.rows.size,), (batch.rows.size, 1), (batch.rows.size, 2)}:
            raise ModelError(
                f"{self._model.where}: {OUTPUT} has the shape {logits.shape} for {batch.rows.size} pairs, but a "
                "cross-encoder with one or two labels is needed: choose another model"
            )
        # Of two labels, the second means that the text answers: softmax is the logistic function of the difference.
        return logits[:, 1] - logits[:, 0] if logits.shape[1:] == (2,) else logits.reshape(-1)

    def _load_pairs(self) -> _Pairs:
        with self._opening:
            if self._pairs is None:
                self._pairs = _Pairs.of(self._model.folder)
            return self._pairs


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The tokens that a tokenizer adds before, between and after a pair of texts, as (tokens, types)."""

    tokenizer: TextTokenizer
    around: tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]
    own_types: tuple[int, int]

    @classmethod
    def of(cls, folder: ModelFolder) -> Self:
        """Find out what the tokenizer adds by tokenizing a short pair."""
        tokenizer, tokens = open_pair_tokenizer(folder)
        first, second = ([place for place, token in enumerate(tokens) if token[2] == text] for text in (0, 1))
        parts = tokens[: first[0]], tokens[first[-1] + 1 : second[0]], tokens[second[-1] + 1 :]
        around = tuple((_column(part, 0), _column(part, 1)) for part in parts)
        tokenizer.read_special_tokens_as_text()  # no text can end its part and begin another
        return cls(tokenizer, around, (tokens[first[0]][1], tokens[second[0]][1]))

    @property
    def added(self) -> int:
        """Return how many tokens are added to a pair."""
        return sum(ids.size for ids, _ in self.around)

    def join(self, query: NDArray[np.int64], text: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the tokens of a pair."""
        before, between, behind = (ids for ids, _ in self.around)
        return np.concatenate([before, query, between, text, behind])

    def types(self, query: NDArray[np.int64], text: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the token types of a pair."""
        before, between, behind = (types for _, types in self.around)
        first, second = (np.full(part.size, number) for part, number in zip((query, text), self.own_types, strict=True))
        return np.concatenate([before, first, between, second, behind])


def _column(tokens: list[tuple[int, int, int | None]], number: int) -> NDArray[np.int64]:
    return np.array([token[number] for token in tokens], dtype=np.int64)
