"""Whether an old value can go without anything else changing.

`A=$(hostname)` can become a literal; `A=$(start_daemon)` and `A=${B:=1}` can't,
because the daemon would not start and B would not be set.
"""

from __future__ import annotations

from collections.abc import Sequence

from fleetctl.environment.shell.tree import (
    Arithmetic,
    Chain,
    DoubleQuoted,
    Literal,
    Parameter,
    Part,
    Pipe,
    Simple,
    SingleQuoted,
    Statement,
    Substitution,
    Word,
)

_READING_PROGRAMS = frozenset(
    {"hostname", "date", "nproc", "cat", "echo", "printf", "grep", "egrep", "awk", "sed", "cut"}
    | {"tr", "wc", "head", "tail", "basename", "dirname", "nvidia-smi", "ip", "uname", "whoami"}
    | {"id", "pwd", "readlink", "realpath", "sort", "uniq", "ls", "lspci", "free", "getconf", "seq"}
    | {"expr", "jq", "ifconfig", "lscpu", "which", "command", "type", "test", "[", "true", "cd"}
    | {"getent", "arch", "locale", "stat"}
)


def loses_nothing(word: Word | None, name: str) -> bool:
    """Say whether evaluating `word` has no effect but the value of `name`."""
    return word is None or all(_pure(part, name) for part in word.parts)


def _pure(part: Part, name: str) -> bool:
    match part:
        case DoubleQuoted():
            return all(_pure(inner, name) for inner in part.parts)
        case Arithmetic():
            return not part.assigned and all(loses_nothing(w, name) for w in part.inner)
        case Substitution():
            return _only_reads(part.body)
        case Parameter():
            if part.operator in (":=", "=", ":?", "?") and part.name != name:
                return False
            if part.computed is not None and part.computed.assigned:
                return False
            inner = [*part.inner, *([part.argument] if part.argument else [])]
            return all(loses_nothing(word, name) for word in inner)
        case _:
            return True


def _only_reads(body: Sequence[Statement]) -> bool:
    return all(_statement_reads(statement) for statement in body)


def _statement_reads(statement: Statement) -> bool:
    if statement.background or any(_writes(r.operator, r.word) for r in statement.redirects):
        return False
    command = statement.command
    match command:
        case Simple():
            return _command_reads(command)
        case Chain() | Pipe():
            return _statement_reads(command.left) and _statement_reads(command.right)
        case _:
            return command is None


def _command_reads(command: Simple) -> bool:
    words = command.words
    if not words:
        return True
    first = words[0].parts
    known = len(first) == 1 and isinstance(first[0], Literal)
    program = first[0].text if known and isinstance(first[0], Literal) else ""
    return program in _READING_PROGRAMS and all(loses_nothing(w, "") for w in words)


def _writes(operator: str, word: Word | None) -> bool:
    if operator in ("<", "<<<", "<<", "<<-", "<&"):
        return False
    target = word.parts if word else ()
    texts = [p.text for p in target if isinstance(p, Literal | SingleQuoted)]
    return "".join(texts) not in ("/dev/null", "1", "2")
