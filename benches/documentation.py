"""Documentation of published packages, as files: out of source archives, 10,000 of them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

FILES = 10_000
# Those with the most pages come first.
PACKAGES = (
    "salt==3008.5",
    "Django==5.2.19",
    "sphinx==9.0.4",
    "nltk==3.9.4",
    "openstacksdk==4.9.0",
    "pylint==4.1.4",
    "astropy==8.0.2",
    "neutron==29.0.0",
    "pytest==9.2.0",
    "celery==5.7.0",
    "sympy==1.9",
    "cinder==29.0.0",
    "nova==34.0.0",
    "python-openstackclient==9.0.1",
    "pyramid==2.1",
    "django-cms==5.1.3",
    "manila==9.1.5",
    "mercurial==7.2.4",
    "twisted==26.10.0",
    "swift==2.38.3",
    "gammapy==2.1",
    "tempest==47.0.0",
    "buildbot==4.3.0",
    "keystone==30.0.0",
    "numba==0.68.1",
    "horizon==27.0.0",
    "glance==33.0.0",
    "octavia==9.1.0",
    "tornado==6.6.1",
    "tacker==16.0.0",
    "senlin==16.0.0",
    "python-watcher==17.0.0",
    "openstack-heat==27.0.1",
    "barbican==23.0.0",
    "trove==26.0.0",
    "zun==18.0.0",
    "mistral==23.0.0",
    "pip==26.3",
    "dask==2026.8.0",
    "lxml==6.1.3",
    "ironic==9.1.7",
    "kombu==5.7.0",
    "xarray==2026.9.0",
    "designate==9.0.2",
    "nikola==8.3.3",
    "magnum==9.4.1",
    "flask==3.1.3",
    "cython==3.3.1",
    "mypy==2.4.1",
    "ipython==9.18.1",
    "jupyterlab==4.6.6",
    "pelican==4.9.1",
    "ceilometer==9.0.7",
    "aiohttp==3.9.5",
    "h5py==3.9.0",
)


def documentation(state: Path, files: int = FILES) -> Path:
    """A folder with so many pages, downloaded where it is not there."""
    folder = state / f"documentation-{files}"
    if not (folder / "made").exists():
        archives = state / "archives"
        archives.mkdir(parents=True, exist_ok=True)
        written = 0
        for package in PACKAGES:
            if written == files:
                break
            written += _unpack(_archive(package, archives), folder / "pages", files - written)
        if written < files:
            raise RuntimeError(f"the archives hold {written} pages of {files}")
        (folder / "made").touch()
    return folder / "pages"


def _archive(package: str, archives: Path) -> Path:
    """The source archive of a package; only that itself as source: what pip needs to read its metadata comes built."""
    name, _, version = package.partition("==")
    found = [path for path in archives.glob("*.tar.gz") if _is_of(path, name, version)]
    if not found:
        print(f"downloading {package}", file=sys.stderr)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        with tempfile.TemporaryDirectory(dir=archives) as fetched:
            subprocess.run([*pip, f"--no-binary={name}", "--dest", fetched, package], check=True)
            (archive,) = Path(fetched).glob("*.tar.gz")
            found = [archive.replace(archives / archive.name)]
    return found[0]


def _is_of(path: Path, name: str, version: str) -> bool:
    wanted = f"{name}-{version}.tar.gz"
    return path.name.lower().replace("_", "-").replace(".", "-") == wanted.lower().replace("_", "-").replace(".", "-")


def _unpack(archive: Path, folder: Path, most: int) -> int:
    with tarfile.open(archive) as packed:
        pages = [member for member, _ in zip(_pages(packed), range(most), strict=False)]
        packed.extractall(folder, members=pages, filter="data")
    return len(pages)


def _pages(packed: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Pages: reStructuredText and Markdown anywhere, text and HTML in folders of documentation."""
    for member in packed:
        path = Path(member.name.lower())
        is_documentation = any(part.startswith("doc") for part in path.parts[1:-1])
        is_page = path.suffix in (".rst", ".md") or (path.suffix in (".txt", ".html") and is_documentation)
        is_shown = not any(part.startswith(".") for part in path.parts)
        if member.isfile() and is_page and is_shown and member.size:
            yield member
