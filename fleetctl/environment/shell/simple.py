"""Simple commands: assignments, builtins, functions, and starts of servers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from fleetctl.environment.shell import nested
from fleetctl.environment.shell.builtins import (
    BUILTINS,
    DECLARATIONS,
    HARMLESS,
    MOVING,
    ONLY_BASH,
    SPECIAL,
    declare_words,
)
from fleetctl.environment.shell.dataflow import HOLE, Hidden, Means, State, join
from fleetctl.environment.shell.machine import Machine
from fleetctl.environment.shell.rewritten import note_arguments
from fleetctl.environment.shell.tree import (
    Assignment,
    Literal,
    Redirect,
    Simple,
)
from fleetctl.environment.shell.words import Field, fields_of, value_of

Ways: TypeAlias = tuple[State | None, State | None]
"""The states after success and after failure; None where there is no such way."""


class Jump(Exception):
    """A command that leaves the list: exit, return, break, continue or exec."""

    def __init__(self, kind: str, levels: int, state: State) -> None:
        super().__init__(kind)
        self.kind = kind
        self.levels = levels
        self.state = state


def run_simple(
    machine: Machine, command: Simple, redirects: Sequence[Redirect], state: State
) -> Ways:
    """Interpret a simple command.

    Raises:
        Jump: it does not come back to the list it stands in.
    """
    for assignment in command.assignments:
        machine.touch_assignment(assignment, state)
    machine.touch(command.words, state)
    if not command.words:
        for assignment in command.assignments:
            _assign(machine, assignment, state, export=None, means=Means.ASSIGNED)
        return state, state
    scope = machine.scope(state)
    items = [item for word in command.words for item in fields_of(word, scope)]
    if not items:
        return state, state
    return _dispatch(machine, command, redirects, items, state)


def _assign(
    machine: Machine, assignment: Assignment, state: State, *, export: bool | None, means: Means
) -> None:
    how = "assignment" if means is Means.ASSIGNED else "prefix of the command"
    if assignment.elements is not None or assignment.indexed:
        machine.set_array(state, assignment, how)
        return
    text = value_of(assignment.value, machine.scope(state))
    write = machine.write(
        assignment.name, means, how, assignment.start, text, machine.site_of(assignment)
    )
    machine.assign(state, write, append=assignment.append, export=export)


def _with_prefixes(machine: Machine, command: Simple, state: State) -> State:
    inner = state.copy()
    for assignment in command.assignments:
        _hide_array(assignment.name, inner)
        _assign(machine, assignment, inner, export=True, means=Means.PREFIX)
    return inner


def _hide_array(name: str, inner: State) -> None:
    """A prefix gives the command a plain value, also where the name is one of an array."""
    hidden = inner.get(name)
    inner.put(name, replace(hidden, attributes=hidden.attributes - {"array"}))


def _dispatch(
    machine: Machine,
    command: Simple,
    redirects: Sequence[Redirect],
    items: list[Field],
    state: State,
) -> Ways:
    inner = _with_prefixes(machine, command, state)
    expanded = _without_aliases(machine, command, items, inner)
    if expanded is items or not _read_with_its_alias(machine, command, items[0].text):
        return _run(machine, command, redirects, expanded, state, inner)
    plain = state.copy()
    ways = _run(machine, command, redirects, items, plain, _with_prefixes(machine, command, plain))
    aliased = _run(machine, command, redirects, expanded, state, inner)
    return _twice(join(*ways, *aliased))


def _read_with_its_alias(machine: Machine, command: Simple, name: str) -> bool:
    """Say whether bash reads a command and its alias as one: then it may not know the alias yet."""
    path, defined = machine.aliased_at.get(name, ("", 0))
    reading = machine.reading
    around = (s for s in reading.script.body if s.start <= command.start <= s.end)
    return path == reading.path and any(reading.line_of(s.start) <= defined for s in around)


def _run(
    machine: Machine,
    command: Simple,
    redirects: Sequence[Redirect],
    items: list[Field],
    state: State,
    inner: State,
) -> Ways:
    plain = _without_command(items)
    name = plain[0].text if plain else ""
    if name in machine.functions and plain is items:
        return _twice(_called(machine, command, name, items[1:], inner, state))
    if _is_own(name):
        lacking = name in ONLY_BASH or items[0].text == "builtin"
        before = state.copy() if machine.is_sh and lacking else None
        ways = _own(machine, command, name, plain[1:], inner, state)
        return ways if before is None else _twice(join(before, *ways))
    if name == "exec" and len(plain) == 1:
        return _twice(state)
    if HOLE in name or items[0].rest:
        state = _call_matching(machine, command, items, inner, state)
    nested.run_program(machine, command, redirects, items, inner)
    note_arguments(machine, items, inner)
    state.started = inner.started
    if name == "exec":
        raise Jump("exit", 0, state)
    if state.strange_functions and "/" not in name and name not in HARMLESS:
        machine.forget(state, name.replace(HOLE, "…") or "a command", command.start)
    return _twice(state)


def _twice(state: State | None) -> Ways:
    return state, state


def _is_own(name: str) -> bool:
    return name in _OWN or name in BUILTINS or name in DECLARATIONS


def _without_command(items: list[Field]) -> list[Field]:
    position = 0
    while position < len(items) and items[position].text in ("command", "builtin"):
        position += 1
        while position < len(items) and items[position].text in ("-p", "--"):
            position += 1
    if position < len(items) and items[position].text in ("-v", "-V"):
        return items  # `command -v NAME` only asks
    return items if position == 0 else items[position:]


def _without_aliases(
    machine: Machine, command: Simple, items: list[Field], inner: State
) -> list[Field]:
    first = command.words[0].parts
    literal = len(first) == 1 and isinstance(first[0], Literal) and "\\" not in first[0].text
    text = machine.aliases.get(items[0].text) if literal else None
    defined_at = machine.aliased_at.get(items[0].text, (machine.reading.path, 0))
    here = (machine.reading.path, machine.reading.line_of(command.start))
    if here[0] == defined_at[0] and here[1] <= defined_at[1]:
        return items  # the line was read before the alias was made
    if text is None or not (machine.aliases_on or machine.is_sh):
        return items
    words = [item for item in text.replace("'", "").replace('"', "").split() if item]
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        name, _, value = words.pop(0).partition("=")
        _hide_array(name, inner)
        inner.assign(
            name,
            machine.write(name, Means.PREFIX, "alias", command.start, value),
            export=True,
        )
    return [*(Field(w, command.words[0], alone=False) for w in words), *items[1:]]


# ---- functions


def _called(
    machine: Machine,
    command: Simple,
    name: str,
    arguments: Sequence[Field],
    inner: State,
    state: State,
) -> State | None:
    """Call a function; what its prefix hid comes back after it."""
    inner.enter(_hidden_by_prefix(command, state, by_function=True))
    defined = any(each.sure for each in machine.functions[name])
    otherwise = None if defined else inner.copy()
    after = join(machine.call(name, arguments, inner), otherwise)
    if after is not None:
        after.leave()
        after.arguments = state.arguments
    return after


def _hidden_by_prefix(command: Simple, state: State, *, by_function: bool) -> Hidden:
    return Hidden({a.name: state.get(a.name) for a in command.assignments}, by_function)


def _call_matching(
    machine: Machine, command: Simple, items: Sequence[Field], inner: State, state: State
) -> State:
    """A name that is put together may be any function that fits, or a program."""
    pattern = re.escape(items[0].text).replace(re.escape(HOLE), ".*")
    for name in list(machine.functions):
        if items[0].rest or re.fullmatch(pattern, name, re.DOTALL):
            after = _called(machine, command, name, items[1:], inner.copy(), state)
            state = state.join(after) if after is not None else state
    return state


# ---- builtins


def _own(
    machine: Machine,
    command: Simple,
    name: str,
    items: list[Field],
    inner: State,
    state: State,
) -> Ways:
    stays = machine.is_sh and name in SPECIAL
    if machine.may_be_posix and name in SPECIAL and not stays:
        _maybe_kept(machine, command, state)
    target = inner if stays or name in ("eval", ".", "source") else state
    if stays:
        for assignment in command.assignments:
            kept = inner.get(assignment.name)
            inner.put(assignment.name, replace(kept, exported=None))
    if target is state or stays:
        return _run_own(machine, command, name, items, target)
    inner.enter(_hidden_by_prefix(command, state, by_function=False))
    outcome = _run_own(machine, command, name, items, inner)
    for way in {id(w): w for w in outcome if w is not None}.values():
        way.leave()
    return outcome


def _maybe_kept(machine: Machine, command: Simple, state: State) -> None:
    """`A=3 :` stays under `set -o posix`; whether that is on here is not followed."""
    for assignment in command.assignments:
        name, how = assignment.name, "prefix of a special builtin"
        state.may_assign(name, machine.write(name, Means.COMPUTED, how, assignment.start, HOLE))
        kept = state.get(name)
        state.put(name, replace(kept, exported=kept.exported or None))


def _run_own(
    machine: Machine, command: Simple, name: str, items: list[Field], state: State
) -> Ways:
    if name in DECLARATIONS:
        declare_words(machine, name, items, state)
    elif name in MOVING:
        before = state.copy()
        BUILTINS[name](machine, items, state)
        return state, None if machine.is_there(state.directory) else before
    elif name in BUILTINS:
        BUILTINS[name](machine, items, state)
    elif name in ("true", ":"):
        return state, None
    elif name == "false":
        return None, state
    elif name in ("exit", "return", "break", "continue"):
        levels = items[0].text if items and items[0].text.isdigit() else "1"
        raise Jump(name, int(levels), state)
    elif name == "eval":
        return _twice(nested.run_eval(machine, command, items, state))
    elif name in (".", "source"):
        return _twice(nested.run_file(machine, command, items, state))
    elif name == "trap":
        nested.note_trap(machine, command, items, state)
    return state, state


_OWN = frozenset(
    {"true", "false", ":", "exit", "return", "break", "continue", "eval", ".", "source", "trap"}
)
