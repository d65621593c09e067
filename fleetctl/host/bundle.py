"""The agent as one file: a zipapp named by the digest of its content."""

from __future__ import annotations

import functools
import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import fleetctl

PARTS = ("__init__.py", "errors.py", "clock.py", "transaction", "agent")
EPOCH = (1980, 1, 1, 0, 0, 0)

ENTRY = """\
import sys
if sys.version_info < (3, 8):
    sys.exit("fleetctl needs Python 3.8 or newer on the host, not " + sys.version.split()[0])
from fleetctl.agent.main import main
sys.exit(main())
"""


@dataclass(frozen=True)
class Bundle:
    """The agent.

    Attributes:
        content: the zipapp.
        digest: its sha256 (hex).
        installer: program text, for any Python 3, that installs and runs it.
    """

    content: bytes
    digest: str
    installer: str


@functools.cache
def agent_bundle() -> Bundle:
    """Return the agent of this fleetctl; the same sources give the same bytes."""
    root = Path(fleetctl.__file__).parent
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        _add(archive, "__main__.py", ENTRY.encode())
        for source in _sources(root):
            _add(archive, f"fleetctl/{source.relative_to(root)}", source.read_bytes())
    content = packed.getvalue()
    installer = (root / "agent" / "install.py").read_text()
    return Bundle(content, hashlib.sha256(content).hexdigest(), installer)


def _sources(root: Path) -> list[Path]:
    """Return the modules of the agent, in a stable order."""
    paths = [root / part for part in PARTS]
    nested = [source for path in paths for source in path.rglob("*.py")]
    return sorted([path for path in paths if path.is_file()] + nested)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o600 << 16
    archive.writestr(entry, content)
