"""A script as bash runs it and as fleetctl tells it: what both say of a few names."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

from fleetctl.environment.explain import explain
from fleetctl.environment.files import Link
from fleetctl.environment.shell.parser import system_parser
from fleetctl.environment.sources import Sources, wanted_files

PARSER = system_parser()
UNIT = "dsv4.service"
HOLE = "\0"
SUDO = """#!/bin/bash
kept=() all=
while [[ $1 == -* ]]; do
  case $1 in
    --preserve-env=*) IFS=, read -ra kept <<< "${1#*=}" ;;
    -u|--user) shift ;;
    -Eu) all=1; shift ;;
    --preserve-env|-*E*) all=1 ;;
  esac
  shift
done
[ "$all" ] && exec "$@"
given=("PATH=$PATH")
for name in "${kept[@]}"; do [ "${!name+x}" ] && given+=("$name=${!name}"); done
exec env -i "${given[@]}" "$@"
"""


@dataclass(frozen=True)
class Host:
    """A service's files below a directory, and the bash that runs its script."""

    root: Path

    def lay_out(self, script: str, files: dict[str, str], links: dict[str, str]) -> None:
        server = f"#!/bin/sh\nexec cat /proc/self/environ > {self.root}/seen\n"
        texts = {"bin/vllm": server, "bin/sudo": SUDO, "serve.sh": script, **files}
        for name, text in texts.items():
            path = self.root / ("real/serve.sh" if name in links else name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("@R@", str(self.root)), newline="")
            path.chmod(0o755)
        for name, target in links.items():
            (self.root / name).symlink_to(target)

    def told(self, names: str) -> dict[str, str | None]:
        unit = f"[Service]\nWorkingDirectory={self.root}\nExecStart={self.root}/serve.sh\n"
        sources = Sources(UNIT, {f"/etc/systemd/system/{UNIT}": unit.encode()})
        while wanted := [p for p in wanted_files(sources, PARSER) if os.path.lexists(p)]:
            links = {p: Link(str(Path(p).readlink())) for p in wanted if Path(p).is_symlink()}
            found = {str(Path(p).resolve()): Path(p).read_bytes() for p in wanted}
            sources = replace(sources, files={**sources.files, **links, **found})
        return {origin.name: origin.value for origin in explain(sources, PARSER, names)}

    def given(self, names: str) -> dict[str, str | None]:
        """Run the script as systemd does: with a path, a language and an invocation."""
        path = f"{self.root}/bin:/usr/local/bin:/usr/bin:/bin"
        environment = {"PATH": path, "LANG": "C.UTF-8", "INVOCATION_ID": "1"}
        subprocess.run([f"{self.root}/serve.sh"], env=environment, cwd=self.root, check=True)
        seen = (self.root / "seen").read_bytes().decode().split("\0")
        values = dict(item.split("=", 1) for item in seen if "=" in item)
        return {name: values.get(name) for name in names}


def check(root: Path, script: str, files=None, links=None, *, names: str = "AB") -> dict:
    """Return what is told, after bash has agreed."""
    host = Host(root)
    host.lay_out(f"#!/bin/bash\n{script}exec vllm serve x\n", files or {}, links or {})
    told = host.told(names)
    for name, value in host.given(names).items():
        said = told[name]
        if said is not None and HOLE in said:
            pattern = ".*".join(re.escape(piece) for piece in said.split(HOLE))
            fits = said == HOLE or re.fullmatch(pattern, value or "", re.DOTALL) is not None
        else:
            fits = said == value
        assert fits, f"{name}: told {said!r}, bash gives {value!r}"
    return told
