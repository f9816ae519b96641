"""Seconds that bm25s takes to tokenize chunks with PyStemmer, several times over; runs in an environment of its own.

Arguments: the corpus' file, how many chunks, how many runs.
"""

import gzip
import json
import sys
import time
from itertools import islice

import Stemmer
from bm25s.tokenization import Tokenizer

path, number, runs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with gzip.open(path, "rt", encoding="utf-8") as lines:
    texts = [json.loads(line) for line in islice(lines, number)]
for run in range(runs + 1):
    tokenizer = Tokenizer(stopwords="english", stemmer=Stemmer.Stemmer("english"))
    started = time.perf_counter()
    tokenizer.tokenize(texts, show_progress=False)
    if run:
        print(time.perf_counter() - started)
