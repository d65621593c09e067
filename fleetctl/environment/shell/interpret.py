"""Control flow: the ways through a script, joined where they meet.

Every way is taken, whatever a condition may say; loops and recursion are repeated until
nothing new is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fleetctl.environment.shell.builtins import MOVING, ONLY_BASH, declaration
from fleetctl.environment.shell.dataflow import HOLE, State, copied, join
from fleetctl.environment.shell.functions import MOST_ROUNDS, FunctionCalls, Loop
from fleetctl.environment.shell.machine import TooEntangled
from fleetctl.environment.shell.observation import Place
from fleetctl.environment.shell.rewritten import note_redirects
from fleetctl.environment.shell.simple import Jump, Ways, run_simple
from fleetctl.environment.shell.tree import (
    Case,
    Chain,
    Command,
    CountingFor,
    Declaration,
    For,
    Group,
    If,
    Literal,
    Pipe,
    Simple,
    Statement,
    Test,
    While,
    Word,
    Wrapped,
)
from fleetctl.environment.shell.words import fields_of

_MOST_UNROLLED = 64


def _matches_all(pattern: Word) -> bool:
    return [p.text for p in pattern.parts if isinstance(p, Literal)] == ["*"]


def _in_child(returns: list[list[State]]) -> list[list[State]]:
    """Return where a `return` in a child process leads: to its end, where there is one at all."""
    return [[]] if returns else []


def _moves(statement: Statement) -> bool:
    """Say whether it is a bare `cd`: the script goes on as if that always succeeded."""
    command = statement.command
    words = command.words if isinstance(command, Simple) else ()
    first = words[0].parts if words else ()
    plain = len(first) == 1 and isinstance(first[0], Literal)
    return plain and isinstance(first[0], Literal) and first[0].text in MOVING


@dataclass
class Interpreter(FunctionCalls):
    """The analysis of one script."""

    def run_list(self, body: Sequence[Statement], state: State) -> State | None:
        """Interpret statements in order."""
        return self._list(body, state, first=False)

    def run_sourced(self, body: Sequence[Statement], state: State) -> State | None:
        """Interpret a file in this process: `return` ends the file."""
        self.returns.append([])
        after = self._list(body, state, first=False)
        return join(after, *self.returns.pop())

    def run_apart(self, body: Sequence[Statement], state: State) -> State | None:
        """Interpret statements in a process of their own: no jump gets out of it."""
        loops, returns = self.loops, self.returns
        self.loops, self.returns = [], _in_child(returns)
        try:
            return self._list(body, state, first=False)
        finally:
            self.loops, self.returns = loops, returns

    def _list(self, body: Sequence[Statement], state: State, *, first: bool) -> State | None:
        current: State | None = state
        for number, statement in enumerate(body):
            if current is None:
                break
            ways = self._placed(statement, current, first=first and number == 0)
            current = ways[0] if _moves(statement) else join(*ways)
        return current

    def _placed(self, statement: Statement, state: State, *, first: bool) -> Ways:
        self.places.append(Place(statement, first, self.reading.inside))
        try:
            return self.outcome(statement, state)
        finally:
            self.places.pop()

    def _condition(self, body: Sequence[Statement], state: State, *, first: bool) -> Ways:
        """Interpret a list whose last statement decides."""
        ways: Ways = (state, state)
        for number, statement in enumerate(body):
            current = join(*ways)
            if current is None:
                break
            ways = self._placed(statement, current, first=first and number == 0)
        return ways

    # ---- one statement

    def outcome(self, statement: Statement, state: State) -> Ways:
        """Interpret one statement; of one that fails halfway nobody can tell what it did."""
        failures = self.failures
        ways = self._outcome(statement, state)
        reading = self.reading
        failed = self.failures > failures
        if failed:
            self.left_line = (reading.path, reading.line_of(statement.end))
        if failed or self.left_line == (reading.path, reading.line_of(statement.start)):
            for way in {id(w): w for w in ways if w is not None}.values():
                self.forget(way, "a command that fails", statement.start)
        return ways

    def _outcome(self, statement: Statement, state: State) -> Ways:
        self.step()
        for redirect in statement.redirects:
            words = [w for w in (redirect.word, redirect.heredoc) if w is not None]
            self.touch(words, state)
            note_redirects(self, [redirect], state)
            if redirect.variable:
                self.computed(state, redirect.variable, "redirection", redirect.start)
        if statement.background:
            return self._background(statement, state)
        try:
            succeeded, failed = self._command(statement, state)
        except Jump as jump:
            return self._jump(jump)
        return (failed, succeeded) if statement.negated else (succeeded, failed)

    def _background(self, statement: Statement, state: State) -> Ways:
        child = state.copy()
        self.background += 1
        try:
            self._apart(lambda: self._command(statement, child))
        finally:
            self.background -= 1
        state.started = state.started | child.started
        return state, state

    def _apart(self, action: Callable[[], object]) -> None:
        loops, returns = self.loops, self.returns
        self.loops, self.returns = [], _in_child(returns)
        try:
            action()
        except Jump as jump:
            self._jump(jump)
        finally:
            self.loops, self.returns = loops, returns

    def _jump(self, jump: Jump) -> Ways:
        if jump.kind == "return" and self.returns:
            self.returns[-1].append(jump.state)
        elif jump.kind in ("break", "continue") and self.loops:
            loop = self.loops[-max(1, min(jump.levels, len(self.loops)))]
            target = loop.breaks if jump.kind == "break" else loop.continues
            target.append(jump.state)
        elif jump.kind in ("break", "continue"):
            return jump.state, jump.state
        elif jump.kind == "return":
            return None, jump.state  # outside functions and sourced files it fails
        return None, None

    def _command(self, statement: Statement, state: State) -> Ways:
        command = statement.command
        match command:
            case Simple():
                return run_simple(self, command, statement.redirects, state)
            case Chain():
                return self._chain(command, state)
            case Wrapped() if not command.coprocess:
                before = state.copy() if self.is_sh else None  # dash has only the program `time`
                done, failed = self.outcome(command.statement, state)
                return join(before, done), join(copied(before), failed)
            case Group() if not command.subshell:
                return self._condition(command.body, state, first=True)
            case _:
                after = self._compound(command, state)
                return after, after

    def _compound(self, command: Command | None, state: State) -> State | None:
        match command:
            case If():
                return self._if(command, state, first=True)
            case While():
                return self._while(command, state)
            case For():
                return self._for(command, state)
            case CountingFor():
                self.touch_arithmetic(command.arithmetic, state)
                return self._repeat(lambda s: self._counted(command, s), state)
            case Case():
                return self._case(command, state)
            case Pipe():
                return self._pipe(command, state)
            case Declaration():
                before = state.copy() if self.is_sh and command.variant in ONLY_BASH else None
                self._declaration(command, state)
                return join(before, state)
            case Test():
                self._test(command, state)
            case Group() | Wrapped():
                self._child(command, state)
            case _:
                pass
        return state

    def _test(self, command: Test, state: State) -> None:
        self.touch(command.words, state)
        if command.arithmetic is not None:
            self.touch_arithmetic(command.arithmetic, state)

    def _child(self, command: Group | Wrapped, state: State) -> None:
        """Interpret a subshell or a coprocess: only what it starts is seen outside."""
        child = state.copy()
        if isinstance(command, Group):
            self._apart(lambda: self._list(command.body, child, first=True))
        else:
            self._apart(lambda: self.outcome(command.statement, child))
            start = command.statement.start
            self.computed_array(state, command.name, "coproc", start)
            self.computed(state, f"{command.name}_PID", "coproc", start)
        state.started = state.started | child.started

    def _declaration(self, command: Declaration, state: State) -> None:
        for argument in command.arguments:
            self.touch_assignment(argument, state)
        declaration(self, command, state)

    def _chain(self, command: Chain, state: State) -> Ways:
        succeeded, failed = self.outcome(command.left, state)
        if succeeded is failed:
            failed = copied(failed)
        goes_on, stays = (succeeded, failed) if command.operator == "&&" else (failed, succeeded)
        right: Ways = (None, None)
        if goes_on is not None:
            right = self.outcome(command.right, goes_on)
        if command.operator == "&&":
            return right[0], join(stays, right[1])
        return join(stays, right[0]), right[1]

    def _pipe(self, command: Pipe, state: State) -> State | None:
        left, right = state.copy(), state.copy()
        self._apart(lambda: self.outcome(command.left, left))
        outcome: list[State | None] = []
        right.started = right.started | left.started
        self._apart(lambda: outcome.extend(self.outcome(command.right, right)))
        state.started = state.started | right.started
        return join(state, *outcome) if self.last_pipe else state

    # ---- branches and loops

    def _if(self, command: If, state: State, *, first: bool) -> State | None:
        if not command.condition:
            return self._list(command.body, state, first=False)
        succeeded, failed = self._condition(command.condition, state, first=first)
        if succeeded is failed:
            failed = copied(failed)
        then = self._list(command.body, succeeded, first=False) if succeeded is not None else None
        if command.otherwise is None or failed is None:
            return join(then, failed)
        return join(then, self._if(command.otherwise, failed, first=False))

    def _while(self, command: While, state: State) -> State | None:
        exits: list[State | None] = []

        def once(head: State) -> State | None:
            ways = self._condition(command.condition, head, first=True)
            goes_on, ends = (ways[1], ways[0]) if command.until else ways
            exits.append(copied(ends))
            goes_on = copied(goes_on)
            return None if goes_on is None else self._list(command.body, goes_on, first=False)

        broke = self._repeat(once, state, falls_through=False)
        return join(broke, *exits)

    def _repeat(
        self, once: Callable[[State], State | None], state: State, *, falls_through: bool = True
    ) -> State | None:
        """Interpret a loop until nothing new is known at its head."""
        head: State = state
        for _ in range(MOST_ROUNDS):
            loop = Loop()
            self.loops.append(loop)
            try:
                after = once(head.copy())
            finally:
                self.loops.pop()
            wider = join(head, after, *loop.continues) or head
            if wider == head:
                return join(head if falls_through else None, *loop.breaks)
            head = wider
        raise TooEntangled

    def _counted(self, command: CountingFor, state: State) -> State | None:
        self.touch_arithmetic(command.arithmetic, state)
        return self._list(command.body, state, first=False)

    def _for(self, command: For, state: State) -> State | None:
        texts = self._items(command, state)
        known = texts is not None and len(texts) <= _MOST_UNROLLED
        if texts is not None and known and not command.select:
            return self._unrolled(command, texts, state)

        def once(head: State) -> State | None:
            self.computed(head, command.name, "for", command.line_start)
            if command.select:
                self.computed(head, "REPLY", "select", command.line_start)
            return self._list(command.body, head, first=False)

        return self._repeat(once, state)

    def _items(self, command: For, state: State) -> tuple[str, ...] | None:
        """Return what a loop runs over, None where that can't be told."""
        if command.items is None:
            return state.arguments
        self.touch(command.items, state)
        scope = self.scope(state)
        items = [item for word in command.items for item in fields_of(word, scope)]
        if any(item.rest or HOLE in item.text for item in items):
            return None
        return tuple(item.text for item in items)

    def _unrolled(self, command: For, texts: Sequence[str], state: State) -> State | None:
        current: State | None = state
        breaks: list[State] = []
        for text in texts:
            if current is None:
                break
            self.computed(current, command.name, "for", command.line_start, text)
            loop = Loop()
            self.loops.append(loop)
            try:
                after = self._list(command.body, current, first=False)
            finally:
                self.loops.pop()
            breaks += loop.breaks
            current = join(after, *loop.continues)
        return join(current, *breaks)

    def _case(self, command: Case, state: State) -> State | None:
        self.touch([command.subject], state)
        unmatched: State | None = state
        falling: State | None = None
        outcomes: list[State | None] = []
        for item in command.items:
            self.touch(item.patterns, state)
            entry = join(copied(unmatched), falling)
            after = self._list(item.body, entry, first=False) if entry is not None else None
            falling = after if item.terminator == ";&" else None
            if any(_matches_all(pattern) for pattern in item.patterns):
                unmatched = None
            if item.terminator == ";;&":
                unmatched = join(unmatched, copied(after))
            if item.terminator != ";&":
                outcomes.append(after)
        return join(unmatched, falling, *outcomes)
