"""Small PDF files, written by hand."""


def pdf(pages, *, info="", trailer="", line_height=50):
    """A PDF whose pages have lines of a size each; with the usual height each of them is a paragraph."""
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", "", "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    kids = []
    for page in pages:
        lines = "\n".join(
            f"BT /F1 {size} Tf 72 {720 - line_height * number} Td ({text}) Tj ET"
            for number, (size, text) in enumerate(page)
        )
        objects.append(f"<< /Length {len(lines)} >>\nstream\n{lines}\nendstream")
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {len(objects)} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        kids.append(f"{len(objects)} 0 R")
    objects[1] = f"<< /Type /Pages /Kids [{' '.join(kids)}] /Count {len(kids)} >>"
    objects.append(f"<< {info} >>")
    data = bytearray(b"%PDF-1.4\n")
    table = "0000000000 65535 f \n"
    for number, written in enumerate(objects, 1):
        table += f"{len(data):010} 00000 n \n"
        data += f"{number} 0 obj\n{written}\nendobj\n".encode()
    start = len(data)
    root = f"/Size {len(objects) + 1} /Root 1 0 R /Info {len(objects)} 0 R {trailer}"
    data += f"xref\n0 {len(objects) + 1}\n{table}trailer << {root} >>\nstartxref\n{start}\n%%EOF\n".encode()
    return bytes(data)
