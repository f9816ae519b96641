"""HTML to Markdown with regular expressions, slowly: the specification of the reader in the core.

Letters of names are equal in either case for ASCII alone, as HTML has it: hence the flag ``(?ai:...)``.
"""

import re
from html import unescape
from string import ascii_lowercase, ascii_uppercase

_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)
# Their content is not shown to readers.
_DROPPED = frozenset({"script", "style", "template", "noscript", "svg"})
# Menus, sidebars and the like: the same words on every page of a site, which would be found for any of them.
_SURROUNDINGS = frozenset({"nav", "aside", "footer"})
_MENUS = "navigation search banner contentinfo menu sidebar sphinxsidebar sidemenu breadcrumb breadcrumbs toc"
_SURROUNDING_NAMES = frozenset((*_MENUS.split(), "headerlink", "headeranchor"))
_NAMED = frozenset({"a", "div", "header", "ol", "section", "table", "ul"})  # such as end where their end tag stands
_NAMES = re.compile(r"""(?<!\S)(?ai:class|id|role)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"']++))""")
# Their content is no HTML: it ends at their end tag and nowhere else.
_RAW = frozenset({"script", "style", "title", "textarea"})
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCK_NAMES = (
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset figcaption figure "
    "footer form header hr html legend li main nav ol option p section select summary table tbody tfoot thead tr ul"
)
# Elements that begin and end a line of their own.
_BLOCKS = frozenset((*_BLOCK_NAMES.split(), *_HEADINGS))

_TAG_BEGINS = re.compile("</?[A-Za-z]")
# A quote opens a value only after "=". All loops are possessive: a failure is final, and costs one pass.
_TAG = re.compile(r"""<(/?)([A-Za-z][^\s/>]*+)((?:=\s*+"[^"]*+"|=\s*+'[^']*+'|=(?!\s*+["'])|[^>=])*+)>""")
_ALTERNATIVE_TEXT = re.compile(r"""(?<!\S)(?ai:alt)\s*+=\s*+(?:"([^"]*+)"|'([^']*+)'|([^\s"']++))""")
# Line beginnings that Markdown would read as structure: heading, fence, underline of a heading.
_STRUCTURE = re.compile(r"^(#{1,6}(?= |$)|`{3,}|~{3,}|=++ ?$|-++ ?$)", re.MULTILINE)


def plain_markdown(html):
    text, title = _converted(html, without_surroundings=True)
    return (text, title) if text else _converted(html, without_surroundings=False)


def _converted(html, *, without_surroundings):
    writer = _Writer(without_surroundings=without_surroundings)
    for kind, *token in _tokens(html):
        getattr(writer, kind)(*token)
    writer.end_block()
    return "\n\n".join(writer.blocks), writer.title or writer.first_heading


def _surrounds(name, attributes):
    """Whether an element is a menu, a sidebar or the like, by its name, class, id or role."""
    if name in _SURROUNDINGS:
        return True
    if name not in _NAMED:
        return False
    return any(
        not _SURROUNDING_NAMES.isdisjoint(found.group(found.lastindex or 1).translate(_LOWER).split())
        for found in _NAMES.finditer(attributes)
    )


def _tokens(html):  # noqa: C901, PLR0912 - one branch per kind of token
    """Yield a method of the writer with its arguments: names of elements in lower case, attributes, characters."""
    offset, end = 0, len(html)
    endless = set()  # raw elements known to have no further end tag: not searched for again
    while offset < end:
        opening = html.find("<", offset)
        if opening < 0:
            opening = end
        if opening > offset:
            yield "add", html[offset:opening]
        offset = opening
        if html.startswith("<!--", offset):
            offset = _after(html, "-->", offset + 2)  # "<!-->" is a whole comment
        elif html.startswith(("<!", "<?"), offset):
            offset = _after(html, ">", offset)
        elif _TAG_BEGINS.match(html, offset) is None:
            if offset < end:
                yield "add", "<"
            offset += 1
        elif (tag := _TAG.match(html, offset)) is None:
            return  # a tag that never ends: browsers drop it, too
        else:
            name, offset = tag.group(2).translate(_LOWER), tag.end()
            if tag.group(1):
                yield "end", name
                continue
            yield "start", name, tag.group(3)
            if name in _RAW and name not in endless:
                closing = re.compile(rf"(?ai:</{name})(?=[\s/>])").search(html, offset)
                if closing is not None:
                    yield "add", html[offset : closing.start()]
                    offset = closing.start()
                else:
                    endless.add(name)


def _after(html, mark, offset):
    found = html.find(mark, offset)
    return len(html) if found < 0 else found + len(mark)


class _Writer:
    def __init__(self, *, without_surroundings):
        self._without_surroundings = without_surroundings
        self.blocks, self._pieces = [], []
        self.title = self.first_heading = None
        self._heading = 0  # level, 0 = none
        self._cells = 0  # of the current table row so far
        self._in_item = self._preformatted = self._in_title = False
        self._dropped, self._dropped_depth = "", 0  # the element whose content is being dropped

    def start(self, name, attributes):  # noqa: C901 - one branch per kind of element
        if self._dropped:
            self._dropped_depth += name == self._dropped and not attributes.endswith("/")
        elif name in _DROPPED or (self._without_surroundings and _surrounds(name, attributes)):
            if name in _BLOCKS:
                self.end_block()
            if not attributes.endswith("/"):
                self._dropped, self._dropped_depth = name, 1
        elif name == "title":
            self.end_block()
            self._in_title = True
        elif name == "br":
            self._pieces.append("\n")
        elif name in ("td", "th"):
            if self._cells:
                self._pieces.append(" | ")
            self._cells += 1
        elif name == "img":
            if found := _ALTERNATIVE_TEXT.search(attributes):
                self.add(f" {found.group(found.lastindex or 1)} ")
        elif name == "pre":
            self.end_block()
            self._preformatted = True
        elif name in _BLOCKS:
            self.end_block()
            self._heading = _HEADINGS.get(name, 0)
            self._in_item = self._in_item or name == "li"

    def end(self, name):
        if self._dropped:
            self._dropped_depth -= name == self._dropped
            if not self._dropped_depth:
                self._dropped = ""
        elif name == "title":
            self._end_title()
        elif name in _BLOCKS or name == "pre":
            self.end_block()
            self._in_item = self._in_item and name != "li"

    def add(self, text):
        if not self._dropped:
            text = _unescaped(text)
            self._pieces.append(text if self._preformatted else re.sub(r"[ \t\r\n\f]+", " ", text))

    def end_block(self):
        """Closes the current line, whatever it is, and adds it to the blocks."""
        if self._in_title:  # never closed
            self._end_title()
        text = "".join(self._pieces)
        self._pieces.clear()
        if self._preformatted:
            block = _code_block(text.strip("\r\n"))
        else:
            # Runs of blanks first: they may be long, and "find blanks before a line end" would be quadratic in them.
            block = self._as_block(re.sub(r" ?\n ?", "\n", re.sub(r" +", " ", text)).strip())
        if block:
            self.blocks.append(block)
            self._in_item = False  # the dash stands before an item's first line only
        self._heading = self._cells = 0
        self._preformatted = False

    def _as_block(self, text):
        if not text:
            return ""
        if self._heading:
            line = " ".join(text.split())
            if self._heading == 1 and self.first_heading is None:
                self.first_heading = line
            return f"{'#' * self._heading} {line}"
        text = _STRUCTURE.sub(r"\\\1", text)
        return f"- {text}" if self._in_item else text

    def _end_title(self):
        self._in_title = False
        text = " ".join("".join(self._pieces).split())
        self._pieces.clear()
        if self.title is None:
            self.title = text or None


def _code_block(text):
    if not text.strip():
        return ""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    return f"{fence}\n{text}\n{fence}"


def _unescaped(text):
    try:
        return unescape(text)
    except ValueError:  # a character number of thousands of digits
        return text
