"""The site of the documentation: `./x docs` builds it into .state/site, with warnings as errors."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
INDEX = "index"
PARTS = {
    "tutorials": "Tutorials",
    "how-to": "How-to guides",
    "reference": "Reference",
    "explanation": "Explanation",
    "design": "Design",
}
LINK = re.compile(r"\[([^\]]+)\]\(([^)\s:#]+)[^)\s]*\)")

project = author = "semlex"
version = release = tomllib.loads((DOCS.parent / "Cargo.toml").read_text("utf-8"))["workspace"]["package"]["version"]
html_title = f"semlex {version}"
html_theme = "furo"
html_copy_source = False
html_show_copyright = html_show_sphinx = False
extensions = ["myst_parser"]
source_suffix = {".md": "markdown", ".ipynb": "notebook"}
exclude_patterns = ["generate"]
myst_heading_anchors = 6
smartquotes = False  # options begin with two dashes
nitpicky = True
# A lexer cannot read outputs of programs, and Python that continues an earlier block.
suppress_warnings = ["misc.highlighting_failure"]


class NotebookParser(MystParser):
    """Read a notebook as the Markdown of its cells and the texts of its outputs."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Parse a notebook."""
        parts: list[str] = []
        for cell in json.loads(inputstring)["cells"]:
            text = "".join(cell["source"])
            parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
            for output in cell.get("outputs", ()):
                shown = output.get("text") or output.get("data", {}).get("text/plain", ())
                parts += [f"```text\n{''.join(shown).rstrip()}\n```"] if shown else []
        super().parse("\n\n".join(parts), document)


def prepare(app: Sphinx, name: str, source: list[str]) -> None:
    """Unlink files outside the documentation, and list the pages below a page: the parts below the index."""
    del app
    here = (DOCS / name).parent
    source[0] = LINK.sub(
        lambda link: link[0] if (here / link[2]).resolve().is_relative_to(DOCS) else link[1], source[0]
    )
    for folder, title in PARTS.items() if name == INDEX else [(name, "Pages")]:
        if (DOCS / folder).is_dir():
            pages = sorted(
                f"/{folder}/{path.stem}" for path in (DOCS / folder).iterdir() if path.suffix in source_suffix
            )
            # In the order in which the page links them.
            linked = [f"/{(here / link[2]).with_suffix('').relative_to(DOCS)}" for link in LINK.finditer(source[0])]
            ordered = dict.fromkeys([*(one for one in linked if one in pages), *pages])
            source[0] += (
                f"\n```{{toctree}}\n:hidden:\n:titlesonly:\n:caption: {title}\n\n" + "\n".join(ordered) + "\n```\n"
            )


def show_dark_pictures(app: Sphinx, tree: nodes.document) -> None:
    """Show NAME-dark.png in place of NAME.png to readers with a dark scheme."""
    for image in list(tree.findall(nodes.image)):
        dark = image["uri"].replace(".png", "-dark.png")
        if dark != image["uri"] and Path(app.env.relfn2path(dark)[1]).exists():
            other: Any = image.deepcopy()
            image["classes"].append("only-light")
            other["classes"].append("only-dark")
            other["uri"] = dark
            image.parent.insert(image.parent.index(image) + 1, other)


def setup(app: Sphinx) -> None:
    """Register what the site adds to Sphinx."""
    app.add_source_parser(NotebookParser)
    app.connect("source-read", prepare)
    app.connect("doctree-read", show_dark_pictures, priority=100)  # before pictures are collected
