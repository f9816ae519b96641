"""The base of embedders and rerankers: devices, weights on disk, tokenizers, the forward pass, HTTP requests."""
