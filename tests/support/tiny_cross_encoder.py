"""A tiny BERT classifier on disk: the real architecture and loading code, with random weights of a fixed seed."""

import torch
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from tests.support import tokenizers_on_disk

torch.set_num_threads(1)

MAX_POSITIONS = 128


def write_cross_encoder(folder, *, labels=1):
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizers_on_disk.word_pieces(),
        pad_token="[PAD]",  # noqa: S106
        unk_token="[UNK]",  # noqa: S106
        cls_token="[CLS]",  # noqa: S106
        sep_token="[SEP]",  # noqa: S106
        model_max_length=MAX_POSITIONS,
    )
    fast.save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(tokenizers_on_disk.WORD_PIECES),
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
