"""What the shell's own commands do to variables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fleetctl.environment.shell.dataflow import HOLE, Means, State, Variable, Write
from fleetctl.environment.shell.machine import NAME, Machine
from fleetctl.environment.shell.paths import moved
from fleetctl.environment.shell.programs import DATA, PROGRAMS, SHELLS, TRANSPARENT
from fleetctl.environment.shell.tree import Assignment, Declaration
from fleetctl.environment.shell.words import Field, arguments_of, fields_of, value_of
from fleetctl.errors import EditRefused

_ATTRIBUTES = {
    "r": "readonly",
    "i": "integer",
    "u": "upper",
    "l": "lower",
    "n": "nameref",
    "c": "capital",
}
_LETTERS = frozenset("aAcfFgiIlnprtuxv-")
"""The options that declarations know; with any other one they fail, and declare nothing."""
_ASSIGNED = re.compile(r"([^=]*?)(\+?)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Options:
    """The flags of a declaration.

    Attributes:
        export: True for -x and `export`, False for +x and `export -n`.
    """

    export: bool | None
    attributes: frozenset[str]
    arrays: bool
    hides: bool
    functions: bool
    how: str


def declaration(machine: Machine, command: Declaration, state: State) -> None:
    """Interpret export, declare, typeset, local, readonly or nameref."""
    if command.variant == "local" and not state.in_function:
        return  # it fails
    scope = machine.scope(state.copy())  # all words are expanded before the first one is assigned
    flags: list[str] = []
    rest: list[tuple[Assignment, str] | Field] = []
    for argument in command.arguments:
        if argument.name or argument.value is None:
            rest.append((argument, value_of(argument.value, scope, assigned=False)))
            continue
        for item in fields_of(argument.value, scope):
            if _is_flag(item.text):
                flags.append(item.text)
            else:
                rest.append(item)
    if _is_wrong(flags):
        return
    options = _options(command.variant, flags, state)
    if options.functions:
        names = [item[0].name for item in rest if isinstance(item, tuple)]
        _declare_functions(machine, options, names)
        return
    for given in rest:
        if isinstance(given, Field):
            _declare_field(machine, given, options, state)
        else:
            _declare(machine, *given, options, state)


def declare_words(machine: Machine, variant: str, items: Sequence[Field], state: State) -> None:
    r"""Interpret the same where the shell sees plain words: `command export A=1`, `\export A=1`."""
    if variant == "local" and not state.in_function:
        return
    flags = [item.text for item in items if _is_flag(item.text)]
    if _is_wrong(flags):
        return
    options = _options(variant, flags, state)
    if options.functions:
        _declare_functions(machine, options, [item.text for item in items])
        return
    for item in items:
        if not _is_flag(item.text):
            _declare_field(machine, item, options, state)


def _declare_functions(machine: Machine, options: Options, names: Sequence[str]) -> None:
    if options.export:
        machine.exported_functions.update(names)


def _is_flag(text: str) -> bool:
    return text[:1] in ("-", "+") and len(text) > 1


def _is_wrong(flags: Sequence[str]) -> bool:
    return any(HOLE not in flag and set(flag[1:]) - _LETTERS for flag in flags)


def _options(variant: str, flags: Sequence[str], state: State) -> Options:
    on = "".join(f[1:] for f in flags if f[0] == "-" and not f.startswith("--"))
    off = "".join(f[1:] for f in flags if f[0] == "+")
    export: bool | None = None
    if variant == "export":
        export = "n" not in on
        on = on.replace("n", "")
    elif "x" in on or "x" in off:
        export = "x" in on
    letters = on + ("r" if variant == "readonly" else "") + ("n" if variant == "nameref" else "")
    scoped = variant in ("declare", "typeset", "local", "nameref")
    return Options(
        export=export,
        attributes=frozenset(_ATTRIBUTES[c] for c in letters if c in _ATTRIBUTES),
        arrays="a" in on or "A" in on,
        hides=scoped and "g" not in on and state.in_function,
        functions="f" in on or "F" in on,
        how=variant if not flags else f"{variant} {' '.join(flags)}",
    )


def _declare(
    machine: Machine, argument: Assignment, text: str, options: Options, state: State
) -> None:
    name = argument.name
    if options.hides:
        state.hide(name)
    if argument.naked:
        _declare_name(machine, name, argument.start, options, state)
        return
    if argument.elements is not None or argument.indexed or options.arrays:
        machine.set_array(state, argument, options.how)
        _finish(name, options, state)
        return
    if machine.is_sh and argument.value and re.search(r"[\s*?\[]", text):
        text = text if _is_wholly_quoted(machine, argument) else HOLE
    write = machine.write(
        name, Means.ASSIGNED, options.how, argument.start, text, machine.site_of(argument)
    )
    _declare_value(machine, write, options, state, append=argument.append)


def _is_wholly_quoted(machine: Machine, argument: Assignment) -> bool:
    """Dash splits what stands unquoted after `export A=`."""
    raw = machine.reading.raw(argument.value_start, argument.end)
    return raw[:1] in (b"'", b'"') and raw[:1] == raw[-1:]


def _declare_value(
    machine: Machine, write: Write, options: Options, state: State, *, append: bool
) -> None:
    old = state.get(write.name)
    if options.hides and "readonly" not in old.attributes:
        # A local variable begins without attributes, but inherits the export mark.
        state.put(write.name, replace(old, attributes=frozenset()))
    state.mark(write.name, attributes=options.attributes - {"readonly", "nameref"})
    machine.note_number(state.get(write.name), write)
    state.assign(write.name, write, append=append, export=options.export)
    _finish(write.name, options, state)


def _finish(name: str, options: Options, state: State) -> None:
    state.mark(name, exported=options.export, attributes=options.attributes)


def _declare_name(machine: Machine, name: str, offset: int, options: Options, state: State) -> None:
    if options.hides:
        # `local A` hides the value, yet a child still gets the one of the caller.
        write = machine.write(name, Means.COMPUTED, options.how, offset, HOLE)
        old = state.get(name)
        state.put(name, Variable(HOLE, old.exported, frozenset({write}), old.earlier))
    if options.arrays:
        old = state.get(name)  # what it held becomes an element, and no child ever sees one
        state.put(name, replace(old, value=HOLE, attributes=old.attributes | {"array"}))
    _finish(name, options, state)


def _declare_field(machine: Machine, item: Field, options: Options, state: State) -> None:
    found = _ASSIGNED.fullmatch(item.text)
    name = found[1] if found else item.text
    offset = item.word.start
    if HOLE in name or item.rest:
        machine.forget(state, options.how, offset)
        return
    if not NAME.fullmatch(name):
        return
    if options.hides:
        state.hide(name)
    if found is None:
        _declare_name(machine, name, offset, options, state)
        return
    site = machine.site_of_field(item, name) if not found[2] else None
    write = machine.write(name, Means.ASSIGNED, options.how, offset, found[3], site)
    _declare_value(machine, write, options, state, append=bool(found[2]))


# ---- other builtins: each takes the arguments after its name


_Builtin = Callable[[Machine, Sequence[Field], State], None]


def _unset(machine: Machine, items: Sequence[Field], state: State) -> None:
    if any(item.text in ("-f", "-n") for item in items):
        # neither removes a variable, but -n a reference
        if any("nameref" in state.get(item.text).attributes for item in items):
            machine.forget(state, "unset -n", items[0].word.start)
        return
    for item in items:
        name = item.text
        if name.startswith("-"):
            continue
        if HOLE in name:
            machine.forget(state, "unset", item.word.start)
        elif NAME.fullmatch(name):
            write = machine.write(name, Means.UNSET, "unset", item.word.start, None)
            state.unset(name, write)


def _read(machine: Machine, items: Sequence[Field], state: State) -> None:
    names = []
    position = 0
    while position < len(items):
        text = items[position].text
        if text.startswith("-"):
            if text[-1] in "dinNptuaA" and len(text) > 1:
                position += 1
                if text[-1] == "a" and position < len(items):
                    array = items[position]
                    machine.computed_array(state, array.text, "read -a", array.word.start)
        else:
            names.append(items[position])
        position += 1
    for item in names:
        machine.computed(state, item.text, "read", item.word.start)


def _mapfile(machine: Machine, items: Sequence[Field], state: State) -> None:
    if items and not items[-1].text.startswith("-"):
        machine.computed_array(state, items[-1].text, "mapfile", items[-1].word.start)


def _printf(machine: Machine, items: Sequence[Field], state: State) -> None:
    if not items or not items[0].text.startswith("-v"):
        return
    target = items[0].text[2:] or (items[1].text if len(items) > 1 else HOLE)
    machine.computed(state, target, "printf -v", items[0].word.start)


def _getopts(machine: Machine, items: Sequence[Field], state: State) -> None:
    offset = items[0].word.start if items else 0
    names = ["OPTARG", "OPTIND", *(item.text for item in items[1:2])]
    for name in names:
        machine.computed(state, name, "getopts", offset)


def _set(machine: Machine, items: Sequence[Field], state: State) -> None:
    texts = [item.text for item in items]
    position = 0
    while position < len(texts) and texts[position][:1] in ("-", "+") and len(texts[position]) > 1:
        text = texts[position]
        position += 1
        if text == "--":
            break
        named = text[1:] == "o" and position < len(texts)
        if text[0] == "-" and ("k" in text[1:] or (named and texts[position] == "keyword")):
            raise _keyword_mode(machine.reading.line_of(items[0].word.start))
        if "a" in text[1:] or (named and texts[position] == "allexport"):
            state.export_all = text[0] == "-"
        position += text.endswith("o")
    arguments_given = position < len(texts) or "--" in texts
    if arguments_given:
        state.arguments = arguments_of(items[position:])


def _keyword_mode(line: int) -> EditRefused:
    return EditRefused(
        "the script makes assignments of arguments",
        code="unsupported",
        why="after `set -k` every NAME=value of a command is taken for the environment",
        line=line,
        next_step="take `set -k` out, or set the flag in the unit",
    )


def _shopt(machine: Machine, items: Sequence[Field], state: State) -> None:
    texts = [item.text for item in items]
    letters = "".join(text[1:] for text in texts if text.startswith("-"))
    if "o" in letters and "allexport" in texts and ("s" in letters or "u" in letters):
        state.export_all = "s" in letters


def _shift(machine: Machine, items: Sequence[Field], state: State) -> None:
    count = items[0].text if items else "1"
    if state.arguments is None:
        return
    if not count.isdigit():
        state.arguments = None
    elif int(count) <= len(state.arguments):  # else it fails, and shifts nothing
        state.arguments = state.arguments[int(count) :]


def _cd(machine: Machine, items: Sequence[Field], state: State) -> None:
    targets = [i.text for i in items if not i.text.startswith("-")]
    offset = items[0].word.start if items else 0
    physically = any("P" in i.text for i in items if i.text.startswith("-"))
    if len(targets) == 1 and not physically and not items[0].text.startswith("-n"):
        state.directory = moved(state.directory, targets[0])
    else:
        state.directory = HOLE
    for name in ("OLDPWD", "PWD"):
        machine.computed(state, name, "cd", offset)


def _alias(machine: Machine, items: Sequence[Field], state: State) -> None:
    for item in items:
        name, equals, text = item.text.partition("=")
        if equals and name in _NEVER_ALIASES and (machine.aliases_on or machine.is_sh):
            raise _alias_of_grammar(name, machine.reading.line_of(item.word.start))
        if equals:
            machine.aliases[name] = text
            line = machine.reading.line_of(item.word.start)
            machine.aliased_at[name] = (machine.reading.path, line)


def _alias_of_grammar(name: str, line: int) -> EditRefused:
    return EditRefused(
        f"the script gives `{name}` another meaning",
        code="unsupported",
        why=f"after an alias of `{name}`, no line that says `{name}` does what it says",
        line=line,
        next_step="take the alias out, or set the flag in the unit",
    )


def _wait(machine: Machine, items: Sequence[Field], state: State) -> None:
    texts = [item.text for item in items]
    if "-p" in texts[:-1]:
        machine.computed(state, texts[texts.index("-p") + 1], "wait -p", items[0].word.start)


def _forgetting(machine: Machine, items: Sequence[Field], state: State) -> None:
    offset = items[0].word.start if items else 0
    machine.forget(state, "an environment manager", offset)


BUILTINS: dict[str, _Builtin] = {
    "unset": _unset,
    "read": _read,
    "mapfile": _mapfile,
    "readarray": _mapfile,
    "printf": _printf,
    "getopts": _getopts,
    "set": _set,
    "shopt": _shopt,
    "shift": _shift,
    "cd": _cd,
    "pushd": _cd,
    "popd": _cd,
    "alias": _alias,
    "wait": _wait,
    **dict.fromkeys(
        ("conda", "mamba", "micromamba", "module", "ml", "spack", "nvm", "pyenv"), _forgetting
    ),
    **dict.fromkeys(("activate", "deactivate", "workon"), _forgetting),
}

MOVING = frozenset({"cd", "pushd", "popd"})
"""Builtins that change the working directory, where they succeed."""

DECLARATIONS = frozenset({"export", "declare", "typeset", "local", "readonly"})
_NEVER_ALIASES = DECLARATIONS | frozenset(
    {"unset", "env", "let", "if", "then", "else", "elif", "fi", "for", "while", "until", "do"}
    | {"done", "case", "esac", "select", "function", "time", "coproc", "{", "}", "!", "[["}
)
"""Words that the parser, or an edit, takes at their word."""

ONLY_BASH = frozenset(
    {"declare", "typeset", "source", "pushd", "popd", "shopt", "mapfile", "readarray", "let"}
)
"""Builtins that `sh` may lack: dash does, a bash of the name `sh` does not."""

SPECIAL = frozenset(
    {".", ":", "break", "continue", "eval", "exec", "exit", "export", "readonly", "return", "set"}
    | {"shift", "times", "trap", "unset"}
)
"""Builtins before which an assignment stays, in a shell that keeps to POSIX."""

HARMLESS = frozenset(DATA | TRANSPARENT | SHELLS | PROGRAMS.keys()) | {
    *("pwd", "umask", "ulimit", "jobs", "times", "break", "continue", "let", "enable"),
    *("bg", "fg", "disown", "suspend", "python", "python3", "nvidia-smi", "vllm", "sglang", "uv"),
    *("hostname", "nproc", "seq", "expr", "id", "whoami", "uname", "ray", "ip", "free", "lscpu"),
}
"""Commands that nobody redefines as functions in a file that a serve script sources."""
