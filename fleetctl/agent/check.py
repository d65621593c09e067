"""What the host itself says about files that are going to be deployed; nothing is changed.

Python is compiled by the service's own interpreter (never imported), shell is read by `bash -n`,
unit files by `systemd-analyze verify`.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
from pathlib import PurePosixPath
from typing import Sequence

from fleetctl.agent.capture import Refused, capture
from fleetctl.agent.edges import Edges
from fleetctl.agent.files import Look, look
from fleetctl.agent.systemd import Said
from fleetctl.agent.walk import PathRefused, resolved
from fleetctl.transaction.outcome import Finding, StagedFile
from fleetctl.transaction.step import WriteFile

DEADLINE_S = 60.0
MISSING = 127
UNIT_SUFFIXES = (".service", ".socket", ".timer", ".target", ".path", ".mount")
SHELLS = re.compile(rb"#!.*\b(ba|da|k|z)?sh\b")
BASH_LINE = re.compile(r"line (\d+): ")
UNIT_LINE = re.compile(r"^[^:]+:(\d+): ")

COMPILE = r"""
import base64, json, sys, warnings
warnings.simplefilter("ignore")
found = []
for path, text in json.load(sys.stdin):
    try:
        compile(base64.b64decode(text), path, "exec", 0, True)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        source = (getattr(error, "text", None) or "").strip()
        found.append([path, line, str(getattr(error, "msg", None) or error), source])
    except Exception as error:
        found.append([path, None, "%s: %s" % (type(error).__name__, error), ""])
sys.stdout.write(json.dumps(found))
"""


def check(edges: Edges, files: Sequence[StagedFile], interpreter: str) -> tuple[Finding, ...]:
    """Return what is wrong with files, by kind; see `Agent.check`."""
    python = [file for file in files if file.path.endswith(".py")]
    shell = [file for file in files if SHELLS.match(file.content) or file.path.endswith(".sh")]
    units = [file for file in files if PurePosixPath(file.path).suffix in UNIT_SUFFIXES]
    return (
        *(finding for file in files for finding in _check_place(edges, file)),
        *_check_python(python, interpreter or sys.executable),
        *(finding for file in shell for finding in _check_shell(file)),
        *(finding for file in units for finding in _check_unit(edges, file)),
    )


def _check_place(edges: Edges, file: StagedFile) -> list[Finding]:
    """Say now what an apply would refuse: hard links, immutable, read-only, not one's own."""
    try:
        with resolved(file.path) as place:
            seen = look(place)
        expected = seen.image.sha256 if isinstance(seen, Look) else seen
        capture(edges, [WriteFile(file.path, "0" * 64, None, expected)], ())
    except FileNotFoundError:
        return []  # its directory is going to be made
    except (Refused, PathRefused, OSError) as error:
        message = error.why if isinstance(error, Refused) else str(error)
        return [Finding(file.path, "the host", fatal=True, message=message)]
    return []


def _check_python(files: Sequence[StagedFile], interpreter: str) -> list[Finding]:
    if not files:
        return []
    texts = [[file.path, base64.b64encode(file.content).decode()] for file in files]
    said = _run([interpreter, "-I", "-S", "-c", COMPILE], json.dumps(texts).encode())
    try:
        found = json.loads(said.output)
    except ValueError:
        message = f"could not be compiled: {said.errors or said.exit_code}"
        return [Finding(file.path, interpreter, fatal=True, message=message) for file in files]
    return [_syntax_error(interpreter, *row) for row in found]


def _syntax_error(
    interpreter: str, path: str, line: int | None, message: str, source: str
) -> Finding:
    where = f"{path}:{line}" if line else path
    text = f"{where}: {message}" + (f"\n    {source}" if source else "")
    return Finding(path, interpreter, fatal=True, message=text, line=line)


def _check_shell(file: StagedFile) -> list[Finding]:
    said = _run(["bash", "-n", "/dev/stdin"], file.content)
    if said.exit_code == 0:
        return []
    if said.exit_code == MISSING:
        return [Finding(file.path, "bash", fatal=False, message="not checked: no bash here")]
    found = BASH_LINE.search(said.errors)
    message = said.errors.replace("/dev/stdin", file.path)
    line = int(found[1]) if found else None
    return [Finding(file.path, "bash", fatal=True, message=message, line=line)]


def _check_unit(edges: Edges, file: StagedFile) -> list[Finding]:
    """Let systemd read a copy of the same name; what it says about other units is left out."""
    name = PurePosixPath(file.path).name
    with edges.state.staging(edges.clock) as folder:
        (folder / name).write_bytes(file.content)
        said = _run(["systemd-analyze", "verify", "--man=no", str(folder / name)], b"")
    if said.exit_code == MISSING:
        return []
    own = [line for line in said.errors.splitlines() if name in line]
    return [_unit_finding(file, line, str(folder), fatal=said.exit_code != 0) for line in own]


def _unit_finding(file: StagedFile, said: str, folder: str, *, fatal: bool) -> Finding:
    message = said.replace(f"{folder}/{PurePosixPath(file.path).name}", file.path)
    found = UNIT_LINE.match(message)
    line = int(found[1]) if found else None
    return Finding(file.path, "systemd-analyze", fatal=fatal, message=message, line=line)


def _run(argv: list[str], stdin: bytes) -> Said:
    try:
        done = subprocess.run(
            argv, input=stdin, capture_output=True, timeout=DEADLINE_S, check=False
        )
    except FileNotFoundError:
        return Said(MISSING, "", f"{argv[0]} is not there")
    except (OSError, subprocess.TimeoutExpired) as error:
        return Said(1, "", str(error))
    errors = done.stderr.decode(errors="replace").strip()
    return Said(done.returncode, done.stdout.decode(errors="replace"), errors)
