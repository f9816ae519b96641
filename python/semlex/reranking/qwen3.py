"""Qwen3-Reranker: a language model decides whether a document meets a query, and answers ``yes`` or ``no``.

Prompt and score follow the Transformers section of the model card of Qwen/Qwen3-Reranker-0.6B. The prompt is built from
token ids, because chat templates of newer revisions silently drop query and document if their roles differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semlex.errors import ConfigurationError, ModelError
from semlex.forks import new_lock
from semlex.models.files import find_model
from semlex.models.local.device import require_torch
from semlex.models.local.transformer import MAX_ROWS, RuntimeReport, Transformer, check_config
from semlex.models.model_names import DEFAULT_INSTRUCTION, DEFAULT_RERANKING_MODEL
from semlex.models.tokenizer import CutTexts, TextTokenizer, TokenRows, open_tokenizer
from semlex.reranking.base import WITHOUT_HUB, CheckedReranker, probabilities
from semlex.validation import check_range

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


PREFIX = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
# Each of these is one id in the vocabulary; a tokenizer that spells them out belongs to another model.
CONTROL_TOKENS = ("<|im_start|>", "<|im_end|>")
NO, YES = "no", "yes"


class Qwen3Reranker(CheckedReranker):
    """Score candidates with a model of the Qwen3-Reranker family, or a conversion of one to a one-label classifier.

    The constructor finds the model, and fails if it is missing; the weights are loaded at first use.
    Blocking, and safe for several threads.

    Args:
        model_name: Hub id, or path of a local folder.
        device: ``mps``, ``cuda``, ``cpu``, or None for the best of this machine.
        batch_size: Maximum candidates in a forward pass, 1 to 1024; the token budget is usually the tighter limit.
        max_length: Maximum tokens of a prompt, 128 to 32768. A longer document is cut, and a warning is logged from
            time to time.
        instruction: Task that the model judges by; None for the one on the model card.
        dtype, revision, attn, token_budget, allow_download: As for `semlex.embedding.qwen3.Qwen3EmbeddingEncoder`.
        exact: Whether to compute in float32.

    Raises:
        ConfigurationError: A parameter is unknown or out of range.
        ModelNotFoundError: The model is not on this machine.
        MissingExtraError: torch or transformers is not installed.
    """

    runs_on_torch = True

    def __init__(
        self,
        model_name: str = DEFAULT_RERANKING_MODEL,
        device: str | None = None,
        batch_size: int = MAX_ROWS,
        max_length: int = 8192,
        instruction: str | None = None,
        *,
        dtype: str | None = None,
        revision: str | None = None,
        attn: str = "trimmed",
        exact: bool = False,
        token_budget: int | None = None,
        allow_download: bool = False,
    ) -> None:
        check_range("batch_size", batch_size, 1, MAX_ROWS)
        check_range("max_length", max_length, 128, 32768)
        if instruction is not None and not instruction.strip():
            raise ConfigurationError("instruction must not be blank; leave it out (None) for the one on the model card")
        if exact and dtype not in (None, "float32"):
            raise ConfigurationError(f"exact=True computes in float32; drop dtype={dtype!r}, or exact=True")
        require_torch("Qwen3 reranking")
        folder = find_model(model_name, revision=revision, allow_download=allow_download, without_hub=WITHOUT_HUB)
        check_config(folder, max_length)
        architectures = folder.read_json("config.json").get("architectures") or [""]
        self._transformer = Transformer(
            folder,
            head="classifier" if str(architectures[0]).endswith("ForSequenceClassification") else "lm",
            device=device,
            precision="float32" if exact else dtype,
            batch_size=batch_size,
            token_budget=token_budget,
            attention=attn,
        )
        self._max_length = max_length
        self._instruction = instruction or DEFAULT_INSTRUCTION
        self._prompt: _Prompt | None = None
        self._head: NDArray[np.float32] | None = None
        self._lock = new_lock()
        self._cut = CutTexts("documents", folder.name)

    @property
    def identity(self) -> str:
        """Return model and revision, in one line."""
        return f"{self._transformer.folder.name}@{self._transformer.folder.revision}"

    @property
    def report(self) -> RuntimeReport | None:
        """Return how the model runs and which faster ways failed, or None while it is not loaded."""
        return self._transformer.report

    def _score(self, query: str, texts: list[str]) -> NDArray[np.float32]:
        prompt = self._load_prompt()
        states = self._transformer.last_hidden(self._token_rows(prompt, query, texts))
        # In half precision the logits of yes and no are often equal (steps of 1/8 at 16 to 32), so the head is float32.
        no, yes = (states @ self._load_head(prompt).T).T.astype(np.float64) if texts else np.empty((2, 0))
        with np.errstate(invalid="ignore"):
            return probabilities(yes - no, self.identity)  # the softmax over two logits

    def close(self) -> None:
        """Release the model and its memory; a second call does nothing."""
        self._transformer.close()

    def _token_rows(self, prompt: _Prompt, query: str, texts: Sequence[str]) -> TokenRows:
        """Return token ids of every prompt; a document that is too long is cut before the suffix."""
        # The splitter always ends a token at this colon, since a space follows it.
        opening = f"<Instruct>: {self._instruction}\n<Query>: {query}\n<Document>:"
        room = self._max_length - prompt.prefix.size - prompt.suffix.size
        taken = int(prompt.tokenizer.count_tokens([opening])[0])
        if taken >= room:
            raise ConfigurationError(
                f"max_length={self._max_length} leaves no room for a document: instruction and query take {taken} "
                f"tokens, the rest of the prompt {prompt.prefix.size + prompt.suffix.size}; raise max_length or "
                "shorten the query"
            )
        rows = prompt.tokenizer.encode(
            [f"{opening} {text}" for text in texts], head=prompt.prefix.tolist(), tail=prompt.suffix.tolist(), most=room
        )
        self._cut.add(len(rows), rows.cut.size, f"max_length={self._max_length} tokens")
        return rows

    def _load_prompt(self) -> _Prompt:
        with self._lock:
            if self._prompt is None:
                self._prompt = _Prompt(open_tokenizer(self._transformer.folder), self._transformer.folder.name)
            return self._prompt

    def _load_head(self, prompt: _Prompt) -> NDArray[np.float32]:
        with self._lock:
            if self._head is None:
                self._head = self._transformer.head_rows((prompt.no, prompt.yes))
            return self._head


class _Prompt:
    """The fixed parts of the prompt as token ids, and the tokenizer for the other parts."""

    def __init__(self, tokenizer: TextTokenizer, model: str) -> None:
        for token in CONTROL_TOKENS:
            if tokenizer.token_id(token) is None:
                raise ModelError(f"the tokenizer of {model} lacks {token}; it is not one of Qwen3-Reranker")
        self.prefix, self.suffix, no, yes = tokenizer.ids([PREFIX, SUFFIX, NO, YES])
        if no.tolist() != [tokenizer.token_id(NO)] or yes.tolist() != [tokenizer.token_id(YES)]:
            raise ModelError(f"the tokenizer of {model} splits 'yes' or 'no'; it is not one of Qwen3-Reranker")
        self.no, self.yes = int(no[0]), int(yes[0])
        # Documents are untrusted: one that spells out control tokens must not end its turn and answer for the model.
        tokenizer.read_special_tokens_as_text()
        self.tokenizer = tokenizer
