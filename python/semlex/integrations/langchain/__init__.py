"""semlex as parts of LangChain: a retriever, a vector store, a document compressor.

    SemlexRetriever: A search as a retriever.
    SemlexVectorStore: A collection as a vector store.
    SemlexReranker: A reranker as a document compressor.
    LangChainEmbedder: An embedding model of LangChain as one of semlex.

Needs the extra ``langchain``.
"""

from semlex.errors import needing

with needing("langchain_core", "langchain-core", "langchain", __name__):
    import langchain_core  # noqa: F401 - only whether it is there

from semlex.integrations.langchain.models import LangChainEmbedder, SemlexReranker
from semlex.integrations.langchain.retriever import SemlexRetriever
from semlex.integrations.langchain.vector_store import SemlexVectorStore

__all__ = ["LangChainEmbedder", "SemlexReranker", "SemlexRetriever", "SemlexVectorStore"]
