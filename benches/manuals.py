"""Documentation in English out of published packages: paragraphs of prose, each once.

Wheels are zip files, so nothing is built or installed: docstrings of modules, descriptions of web services, and manual
pages are read out of them.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterator

# Chosen for much prose in few bytes; wheels without machine code, so that every machine gets the same texts.
PACKAGES = (
    "ansible==12.3.0",
    "ansys-fluent-core==0.43.0",
    "ansys-mapdl-core==0.74.1",
    "apache-airflow-providers-google==22.8.0",
    "aws-cdk-lib==2.275.0",
    "awscli==1.46.3",
    "azure-ai-ml==1.35.2",
    "azure-cli==2.91.0",
    "azure-mgmt-compute==39.0.0",
    "azure-mgmt-datafactory==10.0.0",
    "azure-mgmt-network==33.1.0",
    "botocore==1.44.5",
    "datadog-api-client==2.62.0",
    "google-ads==34.0.0",
    "google-api-python-client==2.202.0",
    "google-cloud-aiplatform==2.7.0",
    "google-cloud-compute==1.57.0",
    "ibm-vpc==0.36.0",
    "ixnetwork-restpy==1.12.2",
    "jax==0.10.2",
    "keras==3.15.1",
    "kubernetes==37.0.2",
    "langchain-community==0.4.2",
    "mlflow==3.18.0",
    "msgraph-sdk==1.65.0",
    "music21==10.5.1",
    "networkx==3.6.1",
    "nltk==3.10.4",
    "nova==34.0.0",
    "oci==2.189.0",
    "plotly==7.1.0",
    "pulumi-alicloud==4.0.0",
    "pulumi-aws-native==1.84.0",
    "pulumi-aws==7.51.1",
    "pulumi-azure-native==3.29.0",
    "pulumi-azure==6.40.1",
    "pulumi-cloudflare==6.23.1",
    "pulumi-databricks==1.118.0",
    "pulumi-datadog==5.17.0",
    "pulumi-gcp==10.2.0",
    "pulumi-gitlab==10.4.0",
    "pulumi-google-native==0.32.0",
    "pulumi-kubernetes==4.34.2",
    "pulumi-mongodbatlas==4.18.0",
    "pulumi-oci==5.5.0",
    "pulumi-snowflake==2.22.0",
    "pulumi-vault==7.14.0",
    "pyaedt==1.9.0",
    "pydo==0.44.0",
    "pyvista==0.49.1",
    "sagemaker-core==2.27.0",
    "stripe==16.1.0",
    "sympy==1.14.0",
    "tencentcloud-sdk-python-intl-en==3.1.193",
    "transformers==5.23.0",
    "twisted==26.10.0",
    "unreal-stub==0.3",
    "vmware-vcenter==9.1.1.0",
)
_COMMON = (
    "a about after all also an and any are as at be been before but by can could do does for from has have how if in "
    "into is it its may more must no not of on one only or other should so some such than that the their then there "
    "these they this to use used using was were what when where which while will with would you your"
)
COMMON_WORDS = frozenset(_COMMON.split())
_DOCSTRING = re.compile(r'(?s)("""|' r"''')(.*?)\1")
_BLOCK_TAG = re.compile(r"(?i)</?(?:p|li|ul|ol|div|dd|dt|dl|h\d|br|note|important|table|tr)\b[^>]{0,200}>")
_TAG = re.compile(r"</?[A-Za-z][^>]{0,200}>")
_BLANK_LINE = re.compile(r"\n\s*\n")
_SIMPLE_WORD = re.compile(r"(?:[a-z]+|[A-Z][a-z]*)[.,:;]?")
MIN_WORDS = 5
# So many paragraphs may differ in nothing but names; generators of code write thousands of them.
SAME_SHAPE = 20


def _shape(text: str) -> int:
    """The same for paragraphs that differ in nothing but names."""
    return crc32(" ".join(word if _SIMPLE_WORD.fullmatch(word) else "#" for word in text.split(" ")[:40]).encode())


def paragraphs(packages: tuple[str, ...] = PACKAGES) -> Iterator[list[str]]:
    """The paragraphs of each file that has any, in an order that is always the same."""
    seen: set[bytes] = set()
    shapes: Counter[int] = Counter()
    for package in packages:
        print(f"reading the documentation of {package}", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="semlex-manuals-") as folder:
            download = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            subprocess.run([*download, "--only-binary=:all:", "--dest", folder, package], check=True)
            (wheel,) = Path(folder).glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    found = []
                    for text in filter(_is_prose, _new_paragraphs(_texts(archive, name), seen)):
                        shapes[shape := _shape(text)] += 1
                        if shapes[shape] <= SAME_SHAPE:
                            found.append(text)
                    if found:
                        yield found


def _texts(archive: zipfile.ZipFile, name: str) -> list[str]:
    """Texts of documentation in one file of a wheel."""
    if name.endswith(".py"):
        return [match[2] for match in _DOCSTRING.finditer(archive.read(name).decode(errors="ignore"))]
    if name.endswith((".rst", ".md")):
        return [archive.read(name).decode(errors="ignore")]
    if name.endswith((".json", ".json.gz")):
        content = archive.read(name)
        try:
            value = json.loads(gzip.decompress(content) if name.endswith(".gz") else content)
        except ValueError:
            return []  # tests of packages hold files that are broken on purpose
        return [html.unescape(_TAG.sub("", _BLOCK_TAG.sub("\n\n", text))) for text in _descriptions(value)]
    return []


def _descriptions(value: Any) -> Iterator[str]:
    """What a description of a service says in words, wherever it stands."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            for key, inner in value.items():
                if isinstance(inner, str) and key in {"documentation", "description"}:
                    yield inner
                elif isinstance(inner, dict | list):
                    waiting.append(inner)
        elif isinstance(value, list):
            waiting += value


def _new_paragraphs(texts: list[str], seen: set[bytes]) -> Iterator[str]:
    """Those that did not occur before; white space does not count."""
    for text in texts:
        for paragraph in _BLANK_LINE.split(text):
            plain = " ".join(paragraph.split())
            mark = hashlib.blake2b(plain.encode(), digest_size=8).digest()
            if mark not in seen:
                seen.add(mark)
                yield plain


def _is_prose(text: str) -> bool:
    """Whether it reads like sentences: words of letters, common ones among them, and mostly ASCII."""
    words = text.split(" ")
    if len(words) < MIN_WORDS or not text.isprintable() or len(text.encode()) > 1.02 * len(text):
        return False
    letters = sum(word.strip(".,;:()[]{}<>\"'`*|").isalpha() for word in words)
    common = sum(word.lower() in COMMON_WORDS for word in words)
    return letters >= 0.6 * len(words) and common >= max(1, 0.1 * len(words))
