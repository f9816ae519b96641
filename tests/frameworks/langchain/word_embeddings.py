"""An embedding model of LangChain for tests: texts that share words have like vectors."""

from langchain_core.embeddings import Embeddings

from semlex.testing import HashEmbedder


class WordEmbeddings(Embeddings):
    def __init__(self, model="words-1", dimensions=32):
        self.model = model
        self._embedder = HashEmbedder(dimensions)

    def embed_documents(self, texts):
        return self._embedder.embed_documents(texts).tolist()

    def embed_query(self, text):
        return self._embedder.embed_query(text).tolist()
