"""What embedders and rerankers stand on: devices, weights on disk, tokenizers, the forward pass."""
