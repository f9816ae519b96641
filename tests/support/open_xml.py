"""Small office files and books, written by hand; their parts may be large."""

import io
import struct
import zipfile

OPEN_XML = "http://schemas.openxmlformats.org"
OFFICE = f"{OPEN_XML}/officeDocument/2006/relationships"
SHEET = f"{OPEN_XML}/spreadsheetml/2006/main"
DOCUMENT = """
<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>One</w:t></w:r></w:p>
<w:p><w:r><w:t>A text *with* signs_of_it.</w:t></w:r></w:p>
<w:tbl><w:tr><w:tc><w:p><w:r><w:t>a</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>b</w:t></w:r></w:p></w:tc></w:tr>
<w:tr><w:tc><w:p><w:r><w:t>1</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>2</w:t></w:r></w:p></w:tc></w:tr></w:tbl>
"""


def packed(kind, main, parts):
    """An Open XML file; a part that is a number is so many MiB of zeros."""
    types = (
        f'<Types xmlns="{OPEN_XML}/package/2006/content-types"><Default Extension="rels" ContentType='
        '"application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" ContentType='
        f'"application/xml"/><Override PartName="/{main}" ContentType='
        f'"application/vnd.openxmlformats-officedocument.{kind}.main+xml"/></Types>'
    )
    return zipped({"[Content_Types].xml": types, "_rels/.rels": related(("officeDocument", main)), **parts})


def zipped(parts):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in parts.items():
            with archive.open(name, "w", force_zip64=True) as part:
                for _ in range(content if isinstance(content, int) else 0):
                    part.write(bytes(1 << 20))
                part.write(content.encode() if isinstance(content, str) else b"")
    return file.getvalue()


def without_part(data, name):
    """The file with a part that cannot be unpacked."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        start = archive.getinfo(name).header_offset
    start += 30 + sum(struct.unpack_from("<HH", data, start + 26))
    return data[:start] + bytes([data[start] ^ 0xFF]) + data[start + 1 :]


def related(*targets):
    """The relations of a part: the kind and the place of each."""
    inner = "".join(
        f'<Relationship Id="r{number}" Type="{OFFICE}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{OPEN_XML}/package/2006/relationships">{inner}</Relationships>'


def docx(document=DOCUMENT):
    if isinstance(document, str):
        name = f"{OPEN_XML}/wordprocessingml/2006/main"
        document = f'<w:document xmlns:w="{name}"><w:body>{document}</w:body></w:document>'
    return packed("wordprocessingml.document", "word/document.xml", {"word/document.xml": document})


def book(sheets, strings=None):
    """A workbook of sheets with these rows; the strings are those that sheets share."""
    parts, targets, listed = {}, [], ""
    for number, (title, rows) in enumerate(sheets.items(), 1):
        place = f"worksheets/sheet{number}.xml"
        parts[f"xl/{place}"] = f'<worksheet xmlns="{SHEET}"><sheetData>{rows}</sheetData></worksheet>'
        targets.append(("worksheet", place))
        listed += f'<sheet name="{title}" sheetId="{number}" r:id="r{number}"/>'
    if strings is not None:
        targets.append(("sharedStrings", "sharedStrings.xml"))
        parts["xl/sharedStrings.xml"] = f'<sst xmlns="{SHEET}">{strings}</sst>'
    parts["xl/workbook.xml"] = f'<workbook xmlns="{SHEET}" xmlns:r="{OFFICE}"><sheets>{listed}</sheets></workbook>'
    parts["xl/_rels/workbook.xml.rels"] = related(*targets)
    return packed("spreadsheetml.sheet", "xl/workbook.xml", parts)


def xlsx(strings):
    return book({"Prices": '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1"><v>7</v></c></row>'}, strings)


def workbook(**sheets):
    """A workbook whose sheets have texts in the rows of these numbers, from the second column on."""

    def row(number, texts):
        cells = (
            f'<c r="{chr(66 + column)}{number}" t="inlineStr"><is><t>{text}</t></is></c>'
            for column, text in enumerate(texts)
        )
        return f'<row r="{number}">{"".join(cells)}</row>'

    styled = '<row r="1"><c r="A1" s="1"/></row>'  # a cell without a value is none
    return book({title: styled + "".join(row(*one) for one in rows.items()) for title, rows in sheets.items()})


def epub(*chapters):
    """A book; a chapter that is None is named in it and not there."""
    items, spine, held = "", "", {}
    for number, one in enumerate(chapters):
        items += f'<item id="i{number}" href="{number}.xhtml" media-type="application/xhtml+xml"/>'
        spine += f'<itemref idref="i{number}"/>'
        text = f'<html xmlns="http://www.w3.org/1999/xhtml"><body><p>{one}</p></body></html>'
        held |= {} if one is None else {f"{number}.xhtml": text if isinstance(one, str) else one}
    parts = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
        '<rootfile full-path="book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>',
        "book.opf": '<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata/>'
        f"<manifest>{items}</manifest><spine>{spine}</spine></package>",
    }
    return zipped(parts | held)
