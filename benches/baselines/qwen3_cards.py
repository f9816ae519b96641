"""The recipes of the cards of Qwen3-Embedding and Qwen3-Reranker, and sentence-transformers set up as they say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoTokenizer

from semlex.reranking.qwen3 import DEFAULT_INSTRUCTION, PREFIX, SUFFIX

if TYPE_CHECKING:
    from pathlib import Path

    from sentence_transformers import CrossEncoder, SentenceTransformer

BATCH = 32


class EmbeddingCard:
    """Texts in the order in which they come, 32 at a time, padded on the left."""

    def __init__(self, folder: Path, precision: str, device: str) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self._model = AutoModel.from_pretrained(folder, dtype=getattr(torch, precision)).eval().to(device)

    def embed(self, texts: list[str]) -> np.ndarray:
        parts = []
        for start in range(0, len(texts), BATCH):
            batch = self._tokenizer(
                texts[start : start + BATCH], padding=True, truncation=True, max_length=8192, return_tensors="pt"
            ).to(self._model.device)
            with torch.no_grad():
                states = self._model(**batch, use_cache=False).last_hidden_state[:, -1]
            parts.append(torch.nn.functional.normalize(states.float(), p=2, dim=1).cpu().numpy())
        return np.concatenate(parts)


class RerankerCard:
    """All candidates in one batch, padded on the left, with the logits of every position."""

    def __init__(self, folder: Path, precision: str, device: str) -> None:
        self._tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, precision)).eval().to(device)
        self._no, self._yes = (self._tokenizer.convert_tokens_to_ids(token) for token in ("no", "yes"))
        self._prefix, self._suffix = (
            self._tokenizer.encode(part, add_special_tokens=False) for part in (PREFIX, SUFFIX)
        )

    def score(self, query: str, texts: list[str]) -> np.ndarray:
        pairs = [f"<Instruct>: {DEFAULT_INSTRUCTION}\n<Query>: {query}\n<Document>: {text}" for text in texts]
        rows = self._tokenizer(pairs, padding=False, truncation="longest_first", max_length=8192)["input_ids"]
        batch = self._tokenizer.pad(
            {"input_ids": [self._prefix + row + self._suffix for row in rows]}, padding=True, return_tensors="pt"
        ).to(self._model.device)
        with torch.no_grad():
            logits = self._model(**batch).logits[:, -1, :]
        answers = torch.stack([logits[:, self._no], logits[:, self._yes]], dim=1).float()
        return torch.nn.functional.log_softmax(answers, dim=1)[:, 1].exp().cpu().numpy()


def sentence_transformer(folder: Path, precision: str, device: str) -> SentenceTransformer:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(
        str(folder),
        device=device,
        model_kwargs={"dtype": getattr(torch, precision)},
        processor_kwargs={"padding_side": "left"},
        local_files_only=True,
    )


def cross_encoder(folder: Path, precision: str, device: str) -> CrossEncoder:
    """A causal language model behind `LogitScore`: how sentence-transformers loads rerankers of this family."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.cross_encoder.modules import LogitScore

    body = Transformer(
        str(folder), transformer_task="text-generation", model_kwargs={"dtype": getattr(torch, precision)}
    )
    yes, no = (body.tokenizer.convert_tokens_to_ids(token) for token in ("yes", "no"))
    return CrossEncoder(modules=[body, LogitScore(yes, no)], device=device, activation_fn=torch.nn.Sigmoid())
