"""The faces that other programs speak to over a wire."""
