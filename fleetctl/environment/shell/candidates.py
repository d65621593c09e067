"""The edits that may give one launch one value, best first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from fleetctl.environment.quoting import Inside, quoted_like, shell_quoted
from fleetctl.environment.shell.analysis import Analysis, Launch
from fleetctl.environment.shell.command_line import CommandLine
from fleetctl.environment.shell.dataflow import Means, Site, Write, is_plain_integer
from fleetctl.environment.shell.observation import Place
from fleetctl.environment.shell.tree import Literal, Simple, Word, bytes_of, text_of
from fleetctl.environment.splice import Splice
from fleetctl.errors import EditRefused


@dataclass(frozen=True)
class Candidate:
    """One edit.

    Attributes:
        because: why it is this one and not a plainer one; empty where nothing is to be said.
    """

    name: str
    means: str
    line: int
    splices: tuple[Splice, ...]
    because: str = ""


def candidates(
    analysis: Analysis, launch: Launch, name: str, wanted: str | None
) -> list[Candidate]:
    """Return the edits that are worth trying for one launch.

    Raises:
        EditRefused: none could be exact, whatever was tried.
    """
    return list(_Chooser(analysis, launch, name, wanted).all())


class _Chooser:
    def __init__(self, analysis: Analysis, launch: Launch, name: str, wanted: str | None) -> None:
        self.script = analysis.script
        self.functions = analysis.functions | analysis.aliases
        self.launch = launch
        self.name = name
        self.wanted = wanted
        self.seen = launch.observations[0]
        self.variable = launch.variable(name)

    def all(self) -> Iterator[Candidate]:
        """Attached to the command first, then in place, then inserted."""
        line = self.seen.line
        own = [(a, w) for a, w in self.seen.attached if a.name == self.name and a.text is not None]
        if any(re.search(rf"\b{self.name}\b", text) for text in self.seen.hidden):
            raise self.refused("unsupported", "it stands in a string that is put together")
        if own:
            yield from self.attached(line)
            return
        self.check_passage(line)
        if any(a.name == self.name for a, _ in self.seen.attached):
            yield from self.through_shell()  # -e NAME copies the shell's value
            return
        if line.cleared or self.name in line.removed or line.loose:
            yield from self.arguments(line)
            return
        yield from self.through_shell()

    # ---- attached to the command

    def attached(self, line: CommandLine) -> Iterator[Candidate]:
        own = [(a, w) for a, w in self.seen.attached if a.name == self.name and a.text is not None]
        last, write = own[-1]
        remote = line.barrier and not line.crossable
        if remote and last.means is not Means.CONTAINER_OPTION:
            raise self.refused("unsupported", line.barrier)
        if any(w.site is None for _, w in own):
            raise self.refused("unsupported", "it stands in a list, an array or an expansion")
        if self.wanted is not None:
            yield from self.in_place(write)
            return
        removals = []
        for item, _ in own:
            start = (item.option or item.field).word.start
            removals.append(self.removal(start, item.field.word.end))
        yield from self.removed(removals, line)

    def removed(self, removals: list[Splice], line: CommandLine) -> Iterator[Candidate]:
        """Take assignments out of the command; what the caller exported must not show instead."""
        alone = Candidate(self.name, "taken out of the command", self.launch.line, tuple(removals))
        if line.cleared:
            yield alone
            return
        for more in self.insertions():
            yield Candidate(
                self.name, f"taken out of the command, {more.means}", more.line,
                (*more.splices, *removals), more.because,
            )  # fmt: skip

    def removal(self, start: int, end: int) -> Splice:
        """Return the splice that takes a word out, with its line where it is alone on one."""
        content = self.script.content
        before = self.script.line_start(start)
        rest = re.compile(rb"[ \t]*(\\\n)?").match(content, end)
        after = rest.end() if rest else end
        alone = not content[before:start].strip(b" \t")
        if alone and content[after - 2 : after] == b"\\\n":
            return Splice(before, after, b"")
        blanks = re.compile(rb"[ \t]*").match(content, end)
        after = blanks.end() if blanks else end
        if content[after : after + 2] == b"\\\n" and not alone:
            blank = re.compile(rb"[ \t]*\Z").search(content[before:start])
            return Splice(before + blank.start() if blank else start, end, b"")
        return Splice(start, after, b"")

    # ---- through arguments

    def check_passage(self, line: CommandLine) -> None:
        if self.launch.observations[0].outer.barrier and not line.crossable:
            raise self.refused("unsupported", self.launch.observations[0].outer.barrier)
        if line.barrier and not line.argument_places:
            raise self.refused("unsupported", line.barrier)
        if line.barrier and not line.crossable:
            raise self.refused("unsupported", line.barrier)

    def arguments(self, line: CommandLine) -> Iterator[Candidate]:
        if line.loose:
            why = "an expansion in the command may set it, and is not known"
            raise self.refused("unsupported", why)
        if self.wanted is None:
            raise self.refused("unsupported", "a file of variables in the command may set it")
        if not line.argument_places or not self.seen.reading.inside.is_editable:
            raise self.refused("unsupported", "nothing of the environment here reaches the server")
        text = line.argument_form % f"{self.name}={shell_quoted(self.wanted)}"
        offset = next(filter(self.begins_line, line.argument_places), line.argument_places[0])
        yield self.candidate("added to the command", self.argument(offset, text))

    def argument(self, offset: int, text: str) -> Splice:
        """Insert an argument before another one; on a line of its own where that one has one."""
        start = self.script.line_start(offset)
        lead = self.script.content[start:offset]
        if lead.strip(b" \t"):
            return Splice(offset, offset, bytes_of(text + " "))
        return Splice(start, start, lead + bytes_of(text) + b" \\\n")

    # ---- through the shell

    def through_shell(self) -> Iterator[Candidate]:
        writes = self.variable.writers
        single = next(iter(writes)) if len(writes) == 1 else None
        site = single.site if single is not None else None
        editable = site is not None and self.variable.exported is True
        self.check_attributes(in_place=editable and site is not None and site.pure)
        outer = self.seen.outer
        around = outer is not self.seen.line and self.seen.outer_reading.inside is Inside.SCRIPT
        if around and outer.cleared and self.wanted is not None and outer.argument_places:
            yield from self.arguments(outer)
        prefixes = [a for a in self.seen.command.assignments if a.name == self.name]
        if prefixes and self.wanted is None and self.seen.reading.inside.is_editable:
            removals = [self.removal(a.start, a.end) for a in prefixes]
            yield from self.removed(removals, self.seen.line)
            return
        if single is not None and editable and self.wanted is not None:
            yield from self.in_place(single)
        yield from self.insertions()

    def check_attributes(self, *, in_place: bool) -> None:
        attributes = self.variable.attributes
        if attributes & {"array", "nameref"}:
            kind = "an array" if "array" in attributes else "a reference"
            raise self.refused("ambiguous", f"the script uses the name for {kind}")
        if "readonly" in attributes and not (in_place and self.wanted is not None):
            raise self.refused("readonly", "the script makes it readonly")
        wanted = self.wanted
        if wanted is None:
            return
        altered = (
            ("integer" in attributes and not is_plain_integer(wanted))
            or ("upper" in attributes and wanted != wanted.upper())
            or ("lower" in attributes and wanted != wanted.lower())
            or ("capital" in attributes and wanted != wanted.capitalize())
        )
        if altered:
            raise self.refused(
                "unsupported", "the script declares it so that bash alters the value"
            )

    def in_place(self, write: Write) -> Iterator[Candidate]:
        site = write.site
        if site is None or self.wanted is None:
            return
        if not site.pure:
            if write.means in (Means.PREFIX, Means.ENV_ARGUMENT):
                text = site.inside.written(f" {self.name}={shell_quoted(self.wanted)}")
                yield Candidate(
                    self.name, "added to the command", write.line,
                    (Splice(site.end, site.end, bytes_of(text)),),
                )  # fmt: skip
            return
        new = bytes_of(site.inside.written(self.rewritten(site)))
        start = site.start if site.whole else site.value_start
        yield Candidate(self.name, "edited in place", write.line, (Splice(start, site.end, new),))

    def rewritten(self, site: Site) -> str:
        wanted = self.wanted or ""
        old = text_of(self.script.content[site.value_start : site.end])
        if not site.whole:
            return quoted_like(wanted, old)
        quoted = quoted_like(f"{self.name}={wanted}", old)
        return quoted if quoted[0] == old[0] else f"{self.name}={shell_quoted(wanted)}"

    # ---- inserted

    def insertions(self) -> Iterator[Candidate]:
        reads = self.reads_itself()
        if reads:
            yield from self.prefixed()
        if not (reads and self.wanted is None):
            for segment in self.segments():
                yield from self.before(segment)
        if not reads:
            yield from self.prefixed()

    def reads_itself(self) -> bool:
        command = self.seen.command
        first = command.words[0].start if command.words else command.start
        return self.is_read(first, command.end) or self.read_by_prefix()

    def read_by_prefix(self) -> bool:
        """Say whether another assignment before the command reads the variable."""
        others = [a for a in self.seen.command.assignments if a.name != self.name]
        return any(self.is_read(a.start, a.end) for a in others)

    def is_read(self, start: int, end: int) -> bool:
        text = self.seen.reading.raw(start, end)
        return re.search(rb"\$\{?[!#]?" + bytes_of(self.name) + rb"\b", text) is not None

    def segments(self) -> list[list[Place]]:
        """Return the statements around the launch, innermost call first, each innermost first.

        A function that runs its arguments is left alone where its caller can be edited; so is
        a script in a string, and a function that is exported to another shell.
        """
        calls: list[list[Place]] = [[]]
        strings: list[Place] = []
        for place in self.seen.places:
            if place is None:
                calls.append([])
            elif place.inside is Inside.SCRIPT:
                calls[-1].append(place)
            elif place.inside.is_editable:
                strings.append(place)
        ordered = [list(reversed(call)) for call in (*reversed(calls), strings)]
        nested = self.seen.outer is not self.seen.line
        if (self.seen.handed or nested) and len(calls) > 1:
            ordered = [*ordered[1:], ordered[0]]
        return [call for call in ordered if call]

    def before(self, segment: list[Place]) -> Iterator[Candidate]:
        reachable = [segment[0]]
        for inner, around in pairwise(segment):
            if not inner.first:
                break
            reachable.append(around)
        usable = [place for place in reachable if not self.passes(place)]
        own_line = next((p for p in usable if self.begins_line(p.statement.start)), None)
        if own_line is not None:
            yield self.statement_at(own_line)
        if usable and usable[0] is not own_line:
            yield self.statement_at(usable[0])

    def passes(self, place: Place) -> bool:
        """Say whether the statement names the variable before it comes to the launch."""
        start, command = place.statement.start, self.seen.command
        known = self.seen.reading.inside.is_editable
        if not known or not start <= command.start <= place.statement.end:
            return False
        between = self.script.content[start : command.start]
        return re.search(rb"\b" + bytes_of(self.name) + rb"\b", between) is not None

    def begins_line(self, offset: int) -> bool:
        return not self.script.content[self.script.line_start(offset) : offset].strip(b" \t")

    def statement_at(self, place: Place) -> Candidate:
        """Insert a statement; what sets the variable before it is left as it is.

        To delete the line that sets it would not be exact: a value that the script was started
        with would show instead, and whatever reads the variable on the way would read another.
        """
        offset = place.statement.start
        if self.wanted is None:
            unset = "unset -v" if self.name in self.functions else "unset"
            text = f"{unset} {self.name}"
        else:
            text = f"export {self.name}={shell_quoted(self.wanted)}"
        text = place.inside.written(text)
        line = self.script.line_of(offset)
        if not self.begins_line(offset):
            splice = Splice(offset, offset, bytes_of(text) + b"; ")
        else:
            start = self.script.line_start(offset)
            indent = self.script.content[start:offset]
            splice = Splice(start, start, indent + bytes_of(text) + b"\n")
        if self.wanted is None:
            return Candidate(
                self.name, "unset before the launch", line, (splice,), self.why_setters_stay()
            )
        return Candidate(self.name, "inserted before the launch", line, (splice,))

    def why_setters_stay(self) -> str:
        writes = self.variable.writers | self.variable.earlier
        lines = sorted({w.line for w in writes if w.line and not w.path})
        if not lines:
            return ""
        which = (
            "which sets it, stays: with it" if len(lines) == 1 else "which set it, stay: with them"
        )
        named = f"line {lines[0]}" if len(lines) == 1 else f"lines {', '.join(map(str, lines))}"
        return f"{named}, {which} deleted, a value from outside could reach the server"

    def prefixed(self) -> Iterator[Candidate]:
        """Put the value into the command itself, which nothing after it can undo."""
        command = self.seen.command
        if not self.seen.reading.inside.is_editable or not command.words:
            return
        if self.wanted is not None:
            text = f"{self.name}={shell_quoted(self.wanted)} "
            text = self.seen.reading.inside.written(text)
            place = command.words[0].start if self.read_by_prefix() else command.start
            splice = Splice(place, place, bytes_of(text), order=1)
            yield self.candidate("put before the command", splice)
            return
        offset = self.program_start(command)
        if offset is not None:
            splice = Splice(offset, offset, bytes_of(f"env -u {self.name} "), order=2)
            yield self.candidate("taken away by env", splice)

    def program_start(self, command: Simple) -> int | None:
        """Return where the program's own word begins, None where it may be a function."""
        words = list(command.words)
        while words and _plain(words[0]) in ("exec", "command"):
            words.pop(0)
        if not words or _plain(words[0]) in self.functions or _plain(words[0]).startswith("-"):
            return None
        return words[0].start

    def candidate(self, means: str, splice: Splice) -> Candidate:
        return Candidate(self.name, means, self.launch.line, (splice,))

    def refused(self, code: str, why: str) -> EditRefused:
        return EditRefused(
            f"{self.name} can't be set for the server in line {self.launch.line}",
            code=code,
            why=why,
            line=self.launch.line,
            next_step="set it in the unit, or edit that line by hand",
        )


def _plain(word: Word) -> str:
    parts = word.parts
    return parts[0].text if len(parts) == 1 and isinstance(parts[0], Literal) else ""
