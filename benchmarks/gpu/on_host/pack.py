"""Collect what a GPU machine without sshd and network lacks: `-m benchmarks.gpu.on_host.pack DIR`.

Into `DIR/ssh.tar.gz` go sshd, ssh and ssh-keygen of this machine with their libraries, which are
found beside them by a relative run path (patchelf is needed); the C library stays the other
machine's, which must be at least as new. Into `DIR/wheels` go the packages that fleetctl and the
engine import, in the versions of constraints.txt; what the other machine has (`--there NAME`) is
left out.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fleetctl.lab.commands import require_program

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ("sshd", "ssh", "ssh-keygen")
PACKAGES = (
    "annotated-types",
    "bcrypt",
    "cffi",
    "cryptography",
    "decorator",
    "Deprecated",
    "docker_systemctl_replacement",
    "fabric",
    "firthmodels",
    "httptools",
    "invoke",
    "jsonschema",
    "jsonschema-specifications",
    "paramiko",
    "pycparser",
    "pydantic",
    "pydantic_core",
    "PyNaCl",
    "referencing",
    "rpds-py",
    "shfmt-py",
    "starlette",
    "tenacity",
    "tomli",
    "typing-inspection",
    "unidiff",
    "uvicorn",
)
# of the C library: these have to be the other machine's own
NOT_CARRIED = re.compile(r"^(ld-linux|lib(c|m|dl|rt|pthread|resolv)\.so)")
GLIBC = (39, 38, 35, 34, 31, 28, 27, 24, 17, 12, 5)


def libraries(program: str) -> dict[str, str]:
    """Return the libraries that a program loads: name -> path; without the C library's."""
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s*(\S+) => (/\S+)", listing, re.MULTILINE)
    return {name: path for name, path in found if not NOT_CARRIED.match(name)}


def pack_ssh(archive: Path, patchelf: str) -> None:
    """Write an archive with `bin/` and `lib/`, which runs from wherever it is unpacked."""
    with tempfile.TemporaryDirectory() as scratch:
        binaries, shared = Path(scratch, "bin"), Path(scratch, "lib")
        binaries.mkdir()
        shared.mkdir()
        for name in PROGRAMS:
            program = require_program(name)
            shutil.copyfile(program, binaries / name)
            (binaries / name).chmod(0o755)
            set_run_path(patchelf, "$ORIGIN/../lib", binaries / name)
            for library, path in libraries(program).items():
                shutil.copyfile(path, shared / library)
        for carried in shared.iterdir():
            carried.chmod(0o755)
            set_run_path(patchelf, "$ORIGIN", carried)
        with tarfile.open(archive, "w:gz") as out:
            out.add(binaries, "bin")
            out.add(shared, "lib")


def set_run_path(patchelf: str, run_path: str, file: Path) -> None:
    """Let a program or library look for its libraries beside itself first."""
    subprocess.run([patchelf, "--force-rpath", "--set-rpath", run_path, str(file)], check=True)


def pack_wheels(folder: Path, python: str, there: Sequence[str]) -> None:
    """Download the wheels for CPython `python` on x86-64 Linux."""
    pinned = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.M))
    wanted = [f"{name}=={pinned[name]}" for name in PACKAGES if name not in there]
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    argv += ["--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    for number in GLIBC:
        argv += ["--platform", f"manylinux_2_{number}_x86_64"]
    subprocess.run([*argv, "--platform", "manylinux2014_x86_64", *wanted], check=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill the folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="of the other machine")
    parser.add_argument("--there", action="append", default=[], help="a package it has")
    parser.add_argument("--patchelf", default="patchelf")
    options = parser.parse_args(arguments)
    wheels = options.folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    pack_ssh(options.folder / "ssh.tar.gz", options.patchelf)
    pack_wheels(wheels, options.python, options.there)
    size = sum(file.stat().st_size for file in options.folder.rglob("*") if file.is_file())
    print(f"{options.folder}: {size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
