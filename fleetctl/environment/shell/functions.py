"""Calls of functions: their bodies are interpreted at every call, recursion until it settles."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import dataclass, field

from fleetctl.environment.shell.dataflow import State, copied, join
from fleetctl.environment.shell.machine import Defined, Machine, TooEntangled
from fleetctl.environment.shell.simple import Ways
from fleetctl.environment.shell.tree import Group, Statement
from fleetctl.environment.shell.words import Field, arguments_of

MOST_ROUNDS = 40


@dataclass
class Loop:
    """The ways out of a loop's body that do not reach its end."""

    breaks: list[State] = field(default_factory=list)
    continues: list[State] = field(default_factory=list)


@dataclass
class _Call:
    """A function that is being interpreted; `again` holds states of calls to itself."""

    entry: State
    again: list[State] = field(default_factory=list)
    returned: State | None = None


@dataclass
class FunctionCalls(Machine):
    """The part of an analysis that follows calls."""

    loops: list[Loop] = field(default_factory=list)
    returns: list[list[State]] = field(default_factory=list)
    calls: dict[str, _Call] = field(default_factory=dict)

    @abc.abstractmethod
    def outcome(self, statement: Statement, state: State) -> Ways:
        """Interpret one statement."""

    def call(self, name: str, arguments: Sequence[Field], state: State) -> State | None:
        """Interpret a call of a function, joining all its definitions."""
        state.arguments = arguments_of(arguments)
        active = self.calls.get(name)
        if active is not None:
            return self._recursive(active, state)
        call = self.calls[name] = _Call(state)
        try:
            for _ in range(MOST_ROUNDS):
                call.again = []
                after = self._bodies(self.functions[name], call.entry)
                wider = join(call.entry, *call.again) or call.entry
                if not call.again or (wider == call.entry and after == call.returned):
                    return after
                call.entry, call.returned = wider, copied(after)
        finally:
            del self.calls[name]
        raise TooEntangled

    def _recursive(self, call: _Call, state: State) -> State | None:
        """A call of a function that is being interpreted: take what it returned last time."""
        entry = state.copy()
        entry.saved = call.entry.saved
        call.again.append(entry)
        returned = copied(call.returned)
        if returned is not None:
            returned.saved = state.saved
        return returned

    def _bodies(self, definitions: Sequence[Defined], state: State) -> State | None:
        outcomes: list[State | None] = []
        for each in definitions:
            with self.read(each.reading):
                outcomes.append(self._body(each.function.body, state.copy()))
        return join(*outcomes)

    def _body(self, body: Statement, state: State) -> State | None:
        self.returns.append([])
        self.places.append(None)
        loops, self.loops = self.loops, []
        try:
            if isinstance(body.command, Group) and not body.command.subshell:
                after = self.run_list(body.command.body, state)
            else:
                after = join(*self.outcome(body, state))
        finally:
            self.loops = loops
            self.places.pop()
            early = self.returns.pop()
        return join(after, *early)
