"""Embedding models: their protocol, and one module for each kind of model."""
