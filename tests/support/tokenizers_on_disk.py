"""Tokenizers of Qwen's make and of Llama 2's, trained on Python's documentation, and texts to try them on."""

import functools
import json
import pydoc_data.topics
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# Qwen's splitting pattern, as its tokenizer.json states it.
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
END_TOKEN = "<|endoftext|>"  # noqa: S105 (not a password)
OTHER_LANGUAGES = """
Die Größe der Straßen überrascht, übrigens auch im Süden. Où étaient les élèves ? À l'école, où ça ? El niño soñó.
数据库 检索 系统 的 速度 很 快 检索数据库。データベースを検索する。데이터베이스를 검색합니다.
Поиск в базе данных быстрый.
ฐานข้อมูลค้นหาได้อย่างรวดเร็ว डेटाबेस में खोजें قاعدة البيانات והמסד 😀 👨‍👩‍👧 👍🏽 ½ ① Ⅷ
"""


def byte_pairs(texts, added, end_token=END_TOKEN, start_token="", **training):
    """A tokenizer with every part of Qwen's, trained on texts; its post-processor adds the tokens, if any."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    splits = pre_tokenizers.Split(Regex(PATTERN), "isolated")
    in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([splits, in_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    training |= {"show_progress": False, "initial_alphabet": pre_tokenizers.ByteLevel.alphabet()}
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(**training))
    tokenizer.add_tokens([AddedToken(token, special=special, normalized=False) for token, special in added.items()])
    parts = [processors.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=False)]
    if end_token is not None:
        end = {"single": f"{start_token} $A {end_token}".strip(), "pair": f"$A {end_token} $B"}
        ids = [(token, tokenizer.token_to_id(token)) for token in (start_token, end_token) if token]
        parts.append(processors.TemplateProcessing(**end, special_tokens=ids))
    tokenizer.post_processor = processors.Sequence(parts)
    return tokenizer


@functools.cache
def content(entries=1500):
    """A ``tokenizer.json`` with every part that Qwen's has."""
    texts = [OTHER_LANGUAGES] * 20 + list(pydoc_data.topics.topics.values())
    added = dict.fromkeys((END_TOKEN, "<|im_start|>", "<|im_end|>"), True)
    added |= dict.fromkeys(("<tool_call>", "</tool_call>", "<think>", "</think>", "<|fim_pad|>"), False)
    return byte_pairs(texts, added, vocab_size=entries).to_str().encode()


WORD_PIECES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", *map(chr, range(33, 127))),
    *("a", "an", "the", "quick", "fox", "dog", "database", "keeps", "rows", "index", "again", "word", "secret"),
    *(f"##{character}" for character in "abcdefghijklmnopqrstuvwxyz0123456789"),
]


def word_pieces():
    """A tokenizer of BERT's kind, with its special tokens."""
    numbers = {token: number for number, token in enumerate(WORD_PIECES)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]"))  # noqa: S106 (not a password)
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(WORD_PIECES[:4])
    return tokenizer


@functools.cache
def word_piece_content():
    """The ``tokenizer.json`` of BERT's kind, with padding and truncation as published files have them."""
    tokenizer = word_pieces()
    tokenizer.enable_padding(length=16)
    tokenizer.enable_truncation(16)
    return tokenizer.to_str().encode()


@functools.cache
def spaced_content(entries=1500, *, across_spaces=False):
    """A ``tokenizer.json`` as Llama 2 has it: ``▁`` for spaces, and bytes for unknown characters."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))  # noqa: S106 (no password)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    if not across_spaces:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    trainer = trainers.BpeTrainer(vocab_size=entries, show_progress=False)
    topics = "\n".join(pydoc_data.topics.topics.values()).splitlines()
    tokenizer.train_from_iterator([*OTHER_LANGUAGES.splitlines() * 20, *topics[:2000]], trainer)
    file = json.loads(tokenizer.to_str())
    vocabulary = file["model"]["vocab"]
    for token in ("<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))):
        vocabulary[token] = len(vocabulary)
    flags = {**dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False), "special": True}
    named = [{"id": vocabulary[token], "content": token, **flags} for token in ("<unk>", "<s>", "</s>")]
    tokens = {"<s>": {"id": "<s>", "ids": [vocabulary["<s>"]], "tokens": ["<s>"]}}
    single = [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    pair = [*single, {"Sequence": {"id": "B", "type_id": 1}}]
    ends = {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens}
    file |= {"pre_tokenizer": None, "added_tokens": named, "post_processor": ends}
    return json.dumps(file, ensure_ascii=False).encode()


def edited(changes, base=None):
    """The same file with other values at some places, for example ``{"model.dropout": 0.1}``."""
    file = json.loads(content() if base is None else base)
    for place, value in changes.items():
        *path, last = [int(step) if step.isdigit() else step for step in place.split(".")]
        functools.reduce(lambda part, step: part[step], path, file)[last] = value
    return json.dumps(file, ensure_ascii=False).encode()


def with_added_tokens(*spellings, **flags):
    """The same file with more added tokens, all flags off but those given."""
    file = json.loads(content())
    for spelling in spellings:
        following = max(token["id"] for token in file["added_tokens"]) + 1
        number = file["model"]["vocab"].get(spelling, following)
        off = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
        file["added_tokens"].append({"id": number, "content": spelling, **off, **flags})
    return json.dumps(file, ensure_ascii=False).encode()


# Kinds of characters that a splitting pattern, a normaliser or a byte-level alphabet could treat in its own way.
POOLS = [
    "abcdefghijklmnopqrstuvwxyzSTDMLRV",
    "0123456789½²①Ⅷ٣",
    "  \t\n\r\u00a0\u2003\u3000\u0085\u2028\u180e\u200b",
    "'’‘\"?!.,-_/<|>(){}[]=+*&^%$#@~`\\:;",  # noqa: RUF001
    "éüñß\u017f\u212aÅǅﬁỆ",
    "\u0300\u0301\u0308\u0323\u0327\u0345\u3099\u0338\u20dd",
    "漢字数据库検索한국어のデータ",
    "\U0001f600\u200d\U0001f468\U0001f469\ufe0f\U0001f3fd\U0001f1e9",
    "สวัสดีครับน้ำผึ้ง",
    "नमस्तेक्ड़\u0958",
    "مرحبًاּשָׁלוֹם",
    "\u1100\u1161\u11a8\uac00\u0f71\u0f72\u0f73\u0344\u212b\u2126\u1e69",
    "\x00\x01\x1f\x7f\x80\x9f\ufffe\U000f0000\U0010ffff",
]
WORDS = [
    *("'s", "'S", "'\u017f", "'re", "'LL", "'VE", "'m", "don't", "it's", "the", " quick", "Query:"),
    "    return None\n",
    *("<|im_start|>", "<think>", "</think>", END_TOKEN, "<|fim_pad|>", "<|im_", "<<think>>", "e\u0301", "\r\n\r\n"),
    *("def f(x): # ", "https://example.org/a?b=c", "==========", "1,000.50", "café", "cafe\u0301"),
]


def generated_texts(seed, number):
    """Short texts, the same for the same seed, of classes that real texts seldom mix."""
    chance = random.Random(seed)
    anything = [chr(code) for code in (*range(0xD800), *range(0xE000, 0x32400), *range(0xE0000, 0xE0200))]
    for _ in range(number):
        parts = []
        for _ in range(chance.randrange(1, 12)):
            kind = chance.random()
            if kind < 0.2:
                parts.append(chance.choice(WORDS))
            elif kind < 0.3:
                parts += chance.choices(anything, k=chance.randrange(1, 4))
            else:
                parts += chance.choices(chance.choice(POOLS), k=chance.randrange(1, 7))
        yield "".join(parts)
