"""From hits to what a language model answers from."""
