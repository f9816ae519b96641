"""Writes every generated part into its page."""

from docs.generate.parts import generated

for path, text in generated().items():
    path.write_text(text, encoding="utf-8")
