"""Quotes of a passage: true ones in every spelling that counts as the same, altered and invented ones."""

import re

from semlex.types.answers import Context, ContextSource
from semlex.types.results import SearchResults

WORDS = [
    "key", "vault", "policy", "rotate", "ninety", "days", "retry", "wait", "seconds", "server", "answer", "limit",
    "quote", "page", "straße", "naïve", "ﬁle", "non-blocking", "can't", "version", "8.5", "1,000", "os.path",
    "snake_case", "“quoted”", "(bracket)", "end.", "stop,", "semi;", "co\xadoperate",
]  # fmt: skip
MISSING = ("zebra", "quagga", "okapi", "tapir")


def passage(random, words=60):
    """A text whose words are all told apart by what stands beside them."""
    drawn = [random.choice(WORDS) if random.random() < 0.6 else f"w{random.randrange(10**6)}" for _ in range(words)]
    return "".join(word + random.choice((" ", " ", " ", "\n", "  ", " \n")) for word in drawn).strip()


def context_of(texts, first_line=1):
    """A context with a source for each text; each stands 1,000 characters into its document."""
    sources = [
        ContextSource(number, f"{number}.md", "", text, (f"{number}",), first_line, None, 1000, 1000 + len(text))
        for number, text in enumerate(texts, start=1)
    ]
    return Context("\n".join(texts), tuple(sources), 1, (), SearchResults())


def true_quote(random, text):
    words = list(re.finditer(r"\S+", text))
    count = random.randint(3, 12)
    first = random.randrange(len(words) - count)
    return text[words[first].start() : words[first + count - 1].end()]


def other_spelling(random, quote):
    """The same words: with other blanks, quotation marks, case, hyphenation and marks at the ends."""
    changes = (
        str.upper,
        lambda it: re.sub(r"\s+", lambda _: random.choice((" ", "\n", "\t ", "\u00a0")), it),
        lambda it: it.replace("“", '"').replace("”", '"').replace("'", "\u2019"),
        lambda it: it.replace("\u00ad", "").replace("ﬁ", "fi"),
        lambda it: re.sub(r"([a-z]{3})([a-z]{3})", "\\1-\n\\2", it, count=1),
        lambda it: re.sub(r"([a-z]{3})([a-z]{3})", "\\1\u00ad\\2", it, count=1),
        lambda it: it.replace("-", "\u2011"),
        lambda it: f'"{it}."',
    )
    for number in sorted(random.sample(range(len(changes)), random.randint(1, 3))):
        quote = changes[number](quote)
    return quote


def altered_quote(random, quote):
    words = quote.split()
    at, other = random.randrange(1, len(words) - 1), random.choice(MISSING)
    words[at : at + 1] = random.choice([[other], [], [other, words[at]]])
    return " ".join(words)


def invented_quote(random, quote):
    return " ".join([*random.choices(MISSING, k=3), *quote.split()[:2], *random.choices(MISSING, k=2)])
