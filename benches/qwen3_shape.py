"""Qwen3 models of 0.6 billion weights in their true shape, with random weights: speed does not depend on the values.

The quick form keeps the widths and has fewer layers, with as much less vocabulary, so that every part of the work
keeps its share. So does the full form where ``SEMLEX_BENCH_LAYERS`` asks for fewer than 28: a pass takes minutes on a
CPU. The tokenizer is trained on the texts that are embedded; what counts is how many tokens a text has.
"""

from __future__ import annotations

import json
import os
import pydoc_data.topics
import random
import sysconfig
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from semlex.models.local.device import choose_placement, describe_devices
from semlex.reranking.qwen3 import DEFAULT_INSTRUCTION, PREFIX, SUFFIX

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LAYERS, VOCABULARY, QUICK_LAYERS = 28, 151_669, 1
TOKENIZER_ENTRIES = 5_000
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Chunks of two large manuals, cut at headings and at 512 tokens, have a mean of 250 tokens and a deviation of 199: many
# are short sections, many stand at the bound. A beta distribution with these parameters has both moments.
BOUND, ALPHA, BETA = 512, 0.318, 0.334
# The chat template of newer revisions, which sentence-transformers goes through; it renders the model card's prompt.
CHAT_TEMPLATE = (
    "{{ '" + PREFIX.replace("\n", "\\n") + "<Instruct>: " + DEFAULT_INSTRUCTION + "\\n<Query>: ' }}"
    '{{ messages | selectattr("role", "eq", "query") | map(attribute="content") | first }}'
    "{{ '\\n<Document>: ' }}"
    '{{ messages | selectattr("role", "eq", "document") | map(attribute="content") | first }}'
    "{{ '" + SUFFIX.replace("\n", "\\n") + "' }}"
)


def layers(*, quick: bool) -> int:
    """How many layers run."""
    return QUICK_LAYERS if quick else int(os.environ.get("SEMLEX_BENCH_LAYERS", str(LAYERS)))


def describe(*, quick: bool, device: str = "cpu") -> str:
    """One line: what runs, and where."""
    import sentence_transformers
    import torch
    import transformers

    number = layers(quick=quick)
    shown = f"{LAYERS} layers"
    if number < LAYERS:
        shown = f"{number} of {LAYERS} layers, vocabulary in proportion, attn=packed"
    return (
        f"  Qwen3 0.6B shape, {shown}, random weights, {precision(device)}, {describe_devices()[device]}; "
        f"torch {torch.__version__}, transformers {transformers.__version__}, "
        f"sentence-transformers {sentence_transformers.__version__}"
    )


def options(*, quick: bool, device: str = "cpu") -> dict[str, str]:
    """How semlex's models are made. A form that trims the last layer would look too good where it is one of few."""
    return {"device": device, "dtype": precision(device)} | ({"attn": "packed"} if layers(quick=quick) < LAYERS else {})


def precision(device: str = "cpu") -> str:
    """The precision that a device gets from the policy; an error if the device is not there."""
    chosen = choose_placement(device, None)
    if chosen.device != device:
        raise SystemExit(f"this machine has no {device}")
    return chosen.precision


def write_model(state: Path, kind: str, *, quick: bool) -> Path:
    """Writes an ``embedder`` or a ``reranker`` once, with the files of sentence-transformers beside it."""
    import torch
    import transformers
    from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3Model

    transformers.logging.disable_progress_bar()
    number = layers(quick=quick)
    folder = state / "qwen3_shape" / f"{kind}-{number}"
    if (folder / "complete").exists():
        return folder
    config = Qwen3Config(
        vocab_size=VOCABULARY * number // LAYERS,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=number,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=32_768,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000},
        tie_word_embeddings=True,
        dtype=torch.bfloat16,
    )
    torch.manual_seed(6)
    model = (Qwen3Model if kind == "embedder" else Qwen3ForCausalLM)(config)
    model.to(torch.bfloat16).save_pretrained(folder)
    write_tokenizer_files(folder, kind)
    (folder / "complete").touch()
    return folder


def write_tokenizer_files(folder: Path, kind: str) -> None:
    """The tokenizer, its settings, and what sentence-transformers reads."""
    trained = tokenizer()
    if kind == "reranker":
        content = json.loads(trained.to_str())
        content["post_processor"] = {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": False,
            "use_regex": False,
        }
        (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    else:
        trained.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "model_max_length": 32_768,
    }
    if kind == "reranker":
        settings["chat_template"] = CHAT_TEMPLATE
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if kind == "embedder":
        kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
        modules = [
            {"idx": place, "name": str(place), "path": path, "type": f"sentence_transformers.models.{name}"}
            for place, (path, name) in enumerate(kinds)
        ]
        (folder / "modules.json").write_text(json.dumps(modules))
        (folder / "1_Pooling").mkdir(exist_ok=True)
        (folder / "2_Normalize").mkdir(exist_ok=True)
        pooling = {"word_embedding_dimension": 1024, "pooling_mode_lasttoken": True, "include_prompt": True}
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


@cache
def tokenizer() -> Tokenizer:
    """Byte-level BPE with Qwen's splitting pattern, trained on `corpus`."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
    from tokenizers.trainers import BpeTrainer

    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.NFC()
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    trained.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(PATTERN), "isolated"), bytes_only])
    trained.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trained.train_from_iterator(
        corpus(), BpeTrainer(vocab_size=TOKENIZER_ENTRIES, show_progress=False, initial_alphabet=alphabet)
    )
    trained.add_tokens(
        [AddedToken(token, special=token.startswith("<|"), normalized=False) for token in SPECIAL_TOKENS]
    )
    end = "<|endoftext|>"
    trained.post_processor = processors.TemplateProcessing(
        single=f"$A {end}", pair=f"$A {end} $B", special_tokens=[(end, trained.token_to_id(end))]
    )
    return trained


@cache
def corpus() -> list[str]:
    """Prose with tables and code, from every Python: its reference manual and modules of its library."""
    modules = ["argparse", "ast", "datetime", "decimal", "difflib", "doctest", "inspect", "logging", "pdb", "tarfile"]
    library = Path(sysconfig.get_path("stdlib"))
    sources = [library / f"{name}.py" for name in modules]
    code = [path.read_text(encoding="utf-8") for path in sources if path.exists()]
    prose = list(pydoc_data.topics.topics.values())
    yes_and_no = "yes\nno\n" * 200  # the reranker's two answers must be tokens
    return [*prose, *code, DEFAULT_INSTRUCTION, PREFIX, yes_and_no]


def chunks(count: int) -> list[str]:
    """Texts with the lengths of real chunks, in an order that is not sorted."""
    chance = random.Random(7)
    return texts([max(4, round(BOUND * chance.betavariate(ALPHA, BETA)) - 1) for _ in range(count)])


def texts(lengths: list[int]) -> list[str]:
    """Pieces of the corpus with these numbers of tokens, prose and code in turn."""
    encodings = [tokenizer().encode(text, add_special_tokens=False) for text in corpus()]
    long = [(text, encoding) for text, encoding in zip(corpus(), encodings, strict=True) if len(encoding) > BOUND]
    chance = random.Random(8)
    found = []
    for length in lengths:
        text, encoding = chance.choice(long)
        first = chance.randrange(len(encoding) - length)
        begin, end = encoding.offsets[first][0], encoding.offsets[first + length - 1][1]
        found.append(text[begin:end])
    return found


def greatest_difference(left: np.ndarray, right: np.ndarray) -> float:
    """Of any component."""
    return float(np.abs(left.astype(np.float64) - right).max())
