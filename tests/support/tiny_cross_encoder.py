"""A tiny BERT classifier on disk: the real architecture and loading code, with random weights of a fixed seed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

if TYPE_CHECKING:
    from pathlib import Path

torch.set_num_threads(1)

MAX_POSITIONS = 128
WORDS = ["a", "an", "the", "quick", "fox", "dog", "database", "keeps", "rows", "index", "again", "word", "secret"]


def write_cross_encoder(folder: Path, *, labels: int = 1) -> Path:
    """Saves a classifier and its tokenizer."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *map(chr, range(33, 127)), *WORDS]
    vocabulary += [f"##{character}" for character in "abcdefghijklmnopqrstuvwxyz0123456789"]
    numbers = {token: number for number, token in enumerate(vocabulary)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))  # noqa: S106 (not a password)
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",  # noqa: S106
        unk_token="[UNK]",  # noqa: S106
        cls_token="[CLS]",  # noqa: S106
        sep_token="[SEP]",  # noqa: S106
        model_max_length=MAX_POSITIONS,
    )
    fast.save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=MAX_POSITIONS,
        initializer_range=0.3,  # large, so that scores tell texts apart
        num_labels=labels,
    )
    torch.manual_seed(22)
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder
