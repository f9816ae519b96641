"""A tiny BERT classifier on disk: the real architecture and loading code, with random weights of a fixed seed."""

import torch
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from tests.support import tokenizers_on_disk

torch.set_num_threads(1)

MAX_POSITIONS = 128


def write_cross_encoder(folder, *, labels=1):
    pieces = tokenizers_on_disk.word_pieces()
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")}
    PreTrainedTokenizerFast(tokenizer_object=pieces, model_max_length=MAX_POSITIONS, **special).save_pretrained(folder)
    counts = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_labels": labels}
    sizes = {"vocab_size": len(tokenizers_on_disk.WORD_PIECES), "hidden_size": 32, "intermediate_size": 64}
    # A large range, so that scores tell texts apart.
    config = BertConfig(**counts, **sizes, max_position_embeddings=MAX_POSITIONS, initializer_range=0.3)
    torch.manual_seed(22)
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder
