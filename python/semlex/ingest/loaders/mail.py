"""E-mails: who wrote to whom about what, and the text."""

from __future__ import annotations

import email.policy
from email import message_from_bytes
from typing import TYPE_CHECKING

from semlex.ingest.loaders.base import LoadedDocument
from semlex.ingest.loaders.html import html_to_markdown

if TYPE_CHECKING:
    from email.message import EmailMessage

_SHOWN = ("From", "To", "Cc", "Date")


def read_mail(data: bytes) -> LoadedDocument:
    """The text of an e-mail, its subject as the title; attachments are left out.

    Python's parser is used: it keeps the paragraphs, and finds the plain one of two forms of a text.
    """
    message = message_from_bytes(data, policy=email.policy.default)
    subject = " ".join(str(message.get("Subject", "")).split())
    head = "\n".join(f"{name}: {' '.join(str(message[name]).split())}" for name in _SHOWN if message.get(name))
    blocks = [block for block in (head, _body(message)) if block]
    text = _storable("\n\n".join(blocks).replace("\0", ""))
    sender = " ".join(str(message.get("From", "")).split())
    return LoadedDocument(text, "markdown", subject or None, {"authors": [sender]} if sender else {})


def _body(message: EmailMessage) -> str:
    part = message.get_body(preferencelist=("plain", "html"))
    if part is None:
        return ""
    content = part.get_content()
    if not isinstance(content, str):
        return ""
    if part.get_content_subtype() == "html":
        return html_to_markdown(_storable(content)).text
    return content.replace("\r\n", "\n").strip()


def _storable(text: str) -> str:
    """The text without lone surrogates: a mail may name an encoding that makes them."""
    return text.encode(errors="replace").decode()
