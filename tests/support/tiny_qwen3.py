"""Tiny Qwen3 models on disk: the real architecture and the real loading code, with random weights of a fixed seed.

The tokenizer has the parts of Qwen's: NFC, its splitting pattern, byte-level BPE, its special tokens, and (for
embedding models) a post-processor that appends ``<|endoftext|>``.
"""

import json

import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3ForSequenceClassification, Qwen3Model

from tests.support.tokenizers_on_disk import END_TOKEN, byte_pairs

# Products this small gain nothing from a second thread, and lose much where other programs are at work.
torch.set_num_threads(1)

HIDDEN = 64
MAX_POSITIONS = 2048
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
TRAINING_TEXT = [
    "Given a web search query, retrieve relevant passages that answer the query",
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided.",
    'Note that the answer can only be "yes" or "no". yes no yes no yes no',
    "system user assistant Instruct: Query: <Instruct>: <Query>: <Document>:",
    "The quick brown fox jumps over the lazy dog; a database keeps rows, and an index finds them again.",
    "Größe Maße naïve café 数据库 検索 поиск 😀",
] * 4


def write_tokenizer(folder, *, start_token="", end_token=END_TOKEN, special_tokens=None):
    """Trains and saves a tokenizer; `start_token` and `end_token` are what its post-processor adds to a text."""
    chosen = SPECIAL_TOKENS if special_tokens is None else special_tokens
    added = {token: token.startswith("<|") for token in chosen}
    tokenizer = byte_pairs(TRAINING_TEXT, added, end_token, start_token, vocab_size=600, min_frequency=2)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    if special_tokens is None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return tokenizer


def config(**changes):
    # Five times the usual `initializer_range`: attention is far from uniform, and float32 still exact to 4e-7.
    sizes = {"vocab_size": 700, "hidden_size": HIDDEN, "intermediate_size": 96, "initializer_range": 0.1}
    sizes |= {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    others = {"max_position_embeddings": MAX_POSITIONS, "tie_word_embeddings": True, "pad_token_id": None}
    return Qwen3Config(**sizes | others | changes)


def write_embedder(folder, **tokenizer_options):
    write_tokenizer(folder, **tokenizer_options)
    torch.manual_seed(20)
    Qwen3Model(config()).save_pretrained(folder)
    return folder


def change_weights(folder, change):
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def write_reranker(folder, **tokenizer_options):
    write_tokenizer(folder, end_token=None, **tokenizer_options)
    torch.manual_seed(21)
    Qwen3ForCausalLM(config()).save_pretrained(folder)
    return folder


def write_classifier(folder, reranker):
    """The same reranker as a classifier with one label, whose row is the yes row minus the no row."""
    tokenizer = write_tokenizer(folder, end_token=None)
    causal = Qwen3ForCausalLM.from_pretrained(reranker, dtype=torch.float32)
    classifier = Qwen3ForSequenceClassification(config(num_labels=1))
    classifier.model.load_state_dict(causal.model.state_dict())
    rows = causal.lm_head.weight.data
    yes, no = tokenizer.token_to_id("yes"), tokenizer.token_to_id("no")
    classifier.score.weight.data[0] = rows[yes] - rows[no]
    classifier.save_pretrained(folder)
    return folder
