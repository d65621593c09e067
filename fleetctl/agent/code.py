"""Ask the interpreter of each serving process where it would import modules from."""

from __future__ import annotations

import json
import os
import pkgutil
import pwd
import shutil
import subprocess
import time
from dataclasses import dataclass
from typing import Any, Iterable, Mapping

from fleetctl.agent.readers import find_readers, source_roots
from fleetctl.transaction.code import CodeQuery, CodeReport, ModuleSource, ProcessCode

_MARK = "fleetctl-probe:"
_DEADLINE_S = 60.0
# interpreter options that take no value and change what is imported
_PLAIN_OPTIONS = "bBdEiIOPqRsSuvVx"


def report_code(query: CodeQuery, pids: Iterable[int]) -> CodeReport:
    """Return what every Python process among `pids` would import.

    Where none of them is a Python process, the query's interpreter answers as pid 0.
    """
    found = [code for pid in pids if (code := _of_process(pid, query)) is not None]
    if not found:
        found = [_of_inventory(query)]
    if not query.names:
        return CodeReport(query.unit, tuple(found))
    roots = source_roots(query.directory, found)
    return CodeReport(query.unit, tuple(found), find_readers(query.names, roots), roots)


def _of_process(pid: int, query: CodeQuery) -> ProcessCode | None:
    try:
        executable = os.readlink(f"/proc/{pid}/exe")
        directory = os.readlink(f"/proc/{pid}/cwd")
        argv = _nul_list(f"/proc/{pid}/cmdline")
        environment = _environment(pid)
        started_s = _started_s(pid)
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None  # it ended meanwhile, or is a kernel thread
    if not os.path.basename(executable).startswith("python"):
        return None
    interpreter = _interpreter(pid, executable, directory, environment)
    options, main, path0 = _options(argv, directory)
    asked = query.modules + ((main.split(".")[0],) if main and "/" not in main else ())
    asker = _Asker(interpreter, tuple(options), directory, environment, path0)
    answer = asker.ask(asked, query.files)
    return ProcessCode(
        pid=pid,
        interpreter=interpreter,
        directory=directory,
        pycache_prefix=environment.get("PYTHONPYCACHEPREFIX", ""),
        main=main,
        started_s=started_s,
        variables=tuple((n, environment[n]) for n in query.variables if n in environment),
        libraries=_loaded(pid, query.libraries),
        **_surroundings(uid, environment),
        **_answered(answer),
    )


def _loaded(pid: int, libraries: tuple[str, ...]) -> tuple[str, ...]:
    """Return those packages of which a process has mapped a file: most have compiled parts."""
    try:
        with open(f"/proc/{pid}/maps", "rb") as stream:
            mapped = {os.fsdecode(line.split(None, 5)[5]) for line in stream if b" /" in line}
    except OSError:
        return ()
    return tuple(name for name in libraries if any(f"/{name}/" in path for path in mapped))


def _surroundings(uid: int, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return user, login name, home and temporary directory, as Python finds them."""
    try:
        entry = pwd.getpwuid(uid)
        user, home = entry.pw_name, entry.pw_dir
    except KeyError:
        user, home = str(uid), "/"
    named = (environment.get(name) for name in ("LOGNAME", "USER", "LNAME", "USERNAME"))
    return {
        "user": user,
        "login": next((name for name in named if name), user),
        "home": environment.get("HOME") or home,
        "temp": environment.get("TMPDIR") or "/tmp",  # noqa: S108 - read, not written
    }


def _of_inventory(query: CodeQuery) -> ProcessCode:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    interpreter, directory = query.interpreter, query.directory
    asker = _Asker(interpreter, (), directory, environment, directory)
    answer = asker.ask(query.modules, query.files)
    return ProcessCode(
        pid=0,
        interpreter=interpreter,
        directory=directory,
        pycache_prefix="",
        main="",
        started_s=0.0,
        **_answered(answer),
    )


def _interpreter(pid: int, executable: str, directory: str, environment: dict[str, str]) -> str:
    """Return the path the process was started by: a virtual environment hides behind a symlink.

    Workers rename themselves (setproctitle overwrites argv), so their ancestors are looked at,
    too; whatever is taken must lead to the executable that runs.
    """
    names = [*_first_words(pid, executable), environment.get("VIRTUAL_ENV", "-") + "/bin/python"]
    for name in names:
        path = (
            os.path.join(directory, name)
            if "/" in name
            else shutil.which(name or "-", path=environment.get("PATH", ""))
        )
        if path and os.path.exists(path) and os.path.realpath(path) == executable:
            return path
    return executable


def _first_words(pid: int, executable: str) -> list[str]:
    """Return argv[0] of a process and of those ancestors that run the same executable."""
    words: list[str] = []
    try:
        while os.readlink(f"/proc/{pid}/exe") == executable:
            words += _nul_list(f"/proc/{pid}/cmdline")[:1]
            pid = int(_stat_fields(pid)[1])
    except OSError:
        pass  # the ancestor is gone or not ours to read: what was found has to do
    return words


def _options(argv: list[str], directory: str) -> tuple[list[str], str, str]:
    """Return the interpreter's own options, what it runs, and what it puts first on its path."""
    options: list[str] = []
    rest = list(argv[1:])
    while rest:
        word = rest.pop(0)
        if word in ("-W", "-X"):
            options += [word, rest.pop(0)] if rest else []
        elif word == "-m":
            return options, rest[0] if rest else "", directory
        elif word.startswith("-c"):
            return options, "", directory
        elif word.startswith("-") and not word.strip("-" + _PLAIN_OPTIONS):
            options.append(word)
        else:
            script = os.path.realpath(os.path.join(directory, word))
            return options, script, os.path.dirname(script)
    return options, "", directory


@dataclass(frozen=True)
class _Asker:
    """An interpreter as a process runs it: with its options, directory and environment."""

    interpreter: str
    options: tuple[str, ...]
    directory: str
    environment: Mapping[str, str]
    path0: str

    def ask(self, modules: tuple[str, ...], files: tuple[str, ...]) -> dict[str, Any]:
        """Return where it would import modules from, and what the files are to it."""
        source = pkgutil.get_data("fleetctl.agent", "probe.py")
        if source is None:
            return {"problem": "the probe is missing from the agent"}
        wanted = {"modules": list(modules), "files": list(files), "path0": self.path0}
        argv = [self.interpreter, "-B", *self.options, "-c", source.decode(), json.dumps(wanted)]
        try:
            done = subprocess.run(
                argv,
                cwd=self.directory,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_DEADLINE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return {"problem": f"{self.interpreter} could not be asked: {error}"[:300]}
        return _understood(done)


def _understood(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        if line.startswith(_MARK):
            answer = json.loads(line[len(_MARK) :])
            return answer if isinstance(answer, dict) else {}
    return {"problem": done.stderr.decode("utf-8", "replace").strip()[-300:] or "no answer"}


def _answered(answer: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a `ProcessCode` that the interpreter itself told."""
    return {
        "prefix": str(answer.get("prefix", "")),
        "version": str(answer.get("version", "")),
        "modules": tuple(_module(found) for found in answer.get("modules", ())),
        "problem": str(answer.get("problem", "")),
    }


def _module(found: dict[str, Any]) -> ModuleSource:
    bytecode = found.get("bytecode") or {}
    file = found.get("file")
    return ModuleSource(
        module=found["module"],
        kind=found["kind"],
        file=file,
        sha256=found.get("sha256"),
        finder=found.get("finder", ""),
        bytecode=bytecode.get("state", ""),
        bytecode_file=bytecode.get("path"),
        changed_s=_changed_s(file),
        at=found.get("at", ""),
        searched=tuple(found.get("searched") or found.get("directories") or ()),
        shadow=tuple((found.get("shadow") or {}).get("directories") or ()),
    )


def _changed_s(file: str | None) -> float | None:
    try:
        return os.stat(file).st_ctime if file else None
    except OSError:
        return None


def _environment(pid: int) -> dict[str, str]:
    pairs = (item.partition("=") for item in _nul_list(f"/proc/{pid}/environ"))
    return {name: value for name, equals, value in pairs if equals}


def _nul_list(path: str) -> list[str]:
    with open(path, "rb") as stream:
        return [os.fsdecode(item) for item in stream.read().split(b"\0") if item]


def _stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat after the name: state, parent and so on."""
    with open(f"/proc/{pid}/stat", "rb") as stream:
        return stream.read().rpartition(b")")[2].split()


def _started_s(pid: int) -> float:
    """Return when a process was started, in the wall clock of the host."""
    started_ticks = int(_stat_fields(pid)[19])
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age_s
