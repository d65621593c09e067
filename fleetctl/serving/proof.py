"""Proof that what runs is what was asked for: flags, code and markers, process by process.

Pure: the agent reports, this judges. Anything not proven is named; nothing is assumed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher

from fleetctl.errors import ExitCode, NotProven
from fleetctl.spec.quoted import quoted
from fleetctl.transaction.code import CodeReport, ModuleSource, ProcessCode
from fleetctl.transaction.snapshot import Process, UnitReport

PATH_NOTE = (
    "a patch by path is shown to lie there since before the start; who imports it is not shown"
)
ENVIRON_NOTE = (
    "/proc/PID/environ shows the environment at exec; later os.environ changes don't show"
)

_FLAG_HINT = "`fleetctl env {host}` shows where flags come from"
_MARKER_HINT = (
    "compare `marker` in the spec with what the patched file prints when the service starts: the "
    "same letters, once in every process"
)
# a line that shares less with a marker is another line
_LEAST_SHARED = 0.5
_LONGEST_SHOWN = 160


@dataclass(frozen=True)
class Proof:
    """What was shown and what was not.

    Attributes:
        shown: one line per fact, for the run's record.
        missing: one line per thing that could not be shown; empty means proven.
        notes: what this kind of proof can't see.
        hints: what helps with what is missing; `{host}` stands for the host's name.
    """

    shown: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether everything asked for was shown."""
        return not self.missing

    def __add__(self, other: Proof) -> Proof:
        return Proof(
            self.shown + other.shown,
            self.missing + other.missing,
            tuple(dict.fromkeys(self.notes + other.notes)),
            tuple(dict.fromkeys(self.hints + other.hints)),
        )


@dataclass(frozen=True)
class ExpectedModule:
    """A module as it has to run: the file, and the sha256 of its source.

    Attributes:
        module: dotted name; for a file that no module names, its path again.
        sha256: None where the arm has no such file.
    """

    module: str
    file: str
    sha256: str | None

    @property
    def is_by_path(self) -> bool:
        """Whether it is a file that a patch names by its path."""
        return self.module == self.file


def require(proof: Proof, host: str) -> None:
    """Raise NotProven unless the proof holds."""
    if not proof.holds:
        raise NotProven(
            f"{host} does not run what was asked for",
            why="\n       ".join(proof.missing),
            next_step="; ".join(
                ("the host was restored", *(hint.replace("{host}", host) for hint in proof.hints))
            ),
            exit_code=ExitCode.FAILED_RESTORED,
        )


def prove_flags(report: UnitReport, flags: Mapping[str, str | None]) -> Proof:
    """Compare each declared flag with the environment of every process of the unit."""
    if not flags:
        return Proof()
    if not report.processes:
        return Proof(missing=(f"{report.unit} has no process whose flags could be read",))
    missing = [line for process in report.processes for line in _wrong_flags(process, flags)]
    pids = ", ".join(str(process.pid) for process in report.processes)
    shown = [f"{_spell(name, value)} in process {pids}" for name, value in flags.items()]
    hints = (_FLAG_HINT,) if missing else ()
    return Proof(() if missing else tuple(shown), tuple(missing), (ENVIRON_NOTE,), hints)


def _wrong_flags(process: Process, flags: Mapping[str, str | None]) -> Iterable[str]:
    who = f"process {process.pid} ({process.executable or 'unknown program'})"
    if not process.environment_readable:
        yield f"{who}: its environment may not be read"
        return
    running = dict(process.flags)
    for name, wanted in flags.items():
        has = running.get(name)
        if has != wanted:
            yield f"{who}: asked for {_spell(name, wanted)}, runs with {_spell(name, has)}"


def _spell(name: str, value: str | None) -> str:
    return f"{name} unset" if value is None else f"{name}={quoted(value)}"


def flags_seen(report: UnitReport, names: Iterable[str]) -> tuple[str, ...]:
    """Return with what values flags run that nobody asked for, one line for each value of each.

    Args:
        report: of the unit, with these flags of its processes.
        names: of the flags.
    """
    pids: dict[str, list[int]] = {}
    for name in names:
        for process in report.processes:
            if process.environment_readable:
                told = _spell(name, dict(process.flags).get(name))
                pids.setdefault(told, []).append(process.pid)
    return tuple(
        f"{told} in " + (f"process {having[0]}" if len(having) == 1 else f"{len(having)} processes")
        for told, having in pids.items()
    )


def prove_own_view(flags: Mapping[str, str | None], view: Mapping[str, object]) -> Proof:
    """Compare flags with what the server itself says it read (`/server_info`), where it says so."""
    missing = [
        f"the server itself says {name}={json.dumps(view[name])}, asked for {_spell(name, wanted)}"
        for name, wanted in flags.items()
        if name in view and str(view[name]) != (wanted if wanted is not None else "None")
    ]
    shown = [f"{name} confirmed by the server itself" for name in flags if name in view]
    hints = (_FLAG_HINT,) if missing else ()
    return Proof(() if missing else tuple(shown), tuple(missing), hints=hints)


def prove_code(report: CodeReport, expected: Iterable[ExpectedModule]) -> Proof:
    """Compare what each Python process would import with the files that were deployed."""
    wanted = tuple(expected)
    if not wanted:
        return Proof()
    asked = [process for process in report.processes if process.pid]
    if not asked and all(expected.is_by_path for expected in wanted):
        note = "the unit has no Python process: of files, only the bytes on disk were compared"
        return sum(
            (_process_proof(process, wanted) for process in report.processes), Proof(notes=(note,))
        )
    if not asked:
        return Proof(missing=(f"{report.unit} has no Python process that could be asked",))
    proof = Proof()
    for process in asked:
        proof += _process_proof(process, wanted)
    return proof


def _process_proof(process: ProcessCode, wanted: tuple[ExpectedModule, ...]) -> Proof:
    who = f"process {process.pid} ({process.interpreter})"
    if process.problem:
        return Proof(missing=(f"{who}: {process.problem}",))
    found = {module.module: module for module in process.modules}
    proof = Proof()
    for expected in wanted:
        problem = _problem(found[expected.module], expected, process)
        notes = (PATH_NOTE,) if expected.is_by_path else ()
        if problem:
            proof += Proof(missing=(f"{who}: {expected.module}: {problem}",), notes=notes)
        else:
            proof += Proof(shown=(f"{_shown(expected)} {who}",), notes=notes)
    return proof


def _shown(expected: ExpectedModule) -> str:
    if expected.sha256 is None:
        return f"{expected.module} is absent for"
    if expected.is_by_path:
        return f"{expected.file} (sha256 {expected.sha256[:12]}) lay there before the start of"
    return f"{expected.module} is {expected.file} (sha256 {expected.sha256[:12]}) in"


def _problem(found: ModuleSource, expected: ExpectedModule, process: ProcessCode) -> str:
    if expected.sha256 is None:
        still = found.kind != "missing" and found.file == expected.file
        return f"{found.file} is still there, and should not be" if still else ""
    if found.kind != "source":
        return explain_source(found)
    if found.file != expected.file:
        return f"imported from {found.file}, deployed to {expected.file}"
    if found.sha256 != expected.sha256:
        return (
            f"{found.file} is not the file that was deployed (sha256 {(found.sha256 or '')[:12]})"
        )
    if found.bytecode == "stale":
        return f"stale bytecode would run: {found.bytecode_file}"
    if process.pid and found.changed_s is not None and found.changed_s > process.started_s:
        return f"{found.file} was changed after the process had started"
    return ""


def explain_source(found: ModuleSource) -> str:
    """Return why a module is no plain source file, in words that name the trap."""
    tail = "".join(
        f"; {directory} is a directory without __init__.py that shadows a package"
        for directory in found.shadow[:1]
    )
    if found.kind == "missing":
        places = ", ".join(found.searched[:4]) or "nowhere"
        return f"`{found.at}` is not found in {places}{tail}"
    if found.kind == "not-a-package":
        return f"`{found.at}` is {found.file}, a module and not a package{tail}"
    if found.kind == "namespace":
        return f"it is a namespace package: directories without __init__.py{tail}"
    return f"it is {found.kind} code ({found.file}), which a source patch can't replace"


def prove_markers(
    lines: Iterable[tuple[int, str]], markers: Iterable[str], pids: Iterable[int]
) -> Proof:
    """Require each log marker once per serving process.

    Args:
        lines: (pid, text) of this invocation's log; pid 0 where the log doesn't say.
        markers: texts that a line has to contain.
        pids: Python processes that have to print them.
    """
    seen = list(lines)
    serving = set(pids)
    proof = Proof()
    for marker in markers:
        printed = [pid for pid, text in seen if marker in text]
        if not printed:
            told = f"no process logged the marker {quoted(marker)}"
            near = nearest_line(marker, (text for _, text in seen))
            nearest = f"; the nearest line was {quoted(near)}" if near else ""
            proof += Proof(missing=(told + nearest,), hints=(_MARKER_HINT,))
        elif 0 in printed:
            note = "the log does not say which process wrote a line"
            proof += Proof(shown=(f"marker {quoted(marker)} was logged",), notes=(note,))
        else:
            silent = sorted(serving - set(printed))
            twice = sorted({pid for pid in printed if printed.count(pid) > 1})
            proof += _marker_proof(marker, silent, twice, printed)
    return proof


def nearest_line(marker: str, lines: Iterable[str]) -> str:
    """Return the line that shares the longest piece with a marker; empty without a near one."""
    words = set(marker.split())
    best, found = _LEAST_SHARED * len(marker), ""
    for line in dict.fromkeys(lines):
        if words.isdisjoint(line.split()):
            continue
        shared = SequenceMatcher(None, line, marker, autojunk=False).find_longest_match().size
        if shared > best:
            best, found = shared, line
    return found[:_LONGEST_SHOWN]


def _marker_proof(marker: str, silent: list[int], twice: list[int], printed: list[int]) -> Proof:
    if silent:
        who = ", ".join(str(pid) for pid in silent)
        missing = (f"process {who} never logged the marker {quoted(marker)}",)
        return Proof(missing=missing, hints=(_MARKER_HINT,))
    if twice:
        who = ", ".join(str(pid) for pid in twice)
        missing = (f"process {who} logged the marker {quoted(marker)} more than once",)
        return Proof(missing=missing, hints=(_MARKER_HINT,))
    who = ", ".join(str(pid) for pid in printed)
    return Proof(shown=(f"marker {quoted(marker)} was logged by process {who}",))
