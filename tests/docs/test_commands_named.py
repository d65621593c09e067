"""Every command that errors, help and docs tell people to type exists, with the options named."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command

from fleetctl.cli.app import app

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "fleetctl").rglob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMED = re.compile(r"`fleetctl ([a-z]+[^`#\n|>]*)`")
SHELL = re.compile(r"^```sh$(.*?)^```$", re.MULTILINE | re.DOTALL)
ALONE = re.compile(r"^fleetctl +([a-z]+[^#\n|>]*)", re.MULTILINE)
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")


def named(text: str) -> Iterator[str]:
    """Yield what stands after `fleetctl` between backticks; quoted words are arguments."""
    yield from (QUOTED.sub("WORD", command).strip() for command in NAMED.findall(text))


def typed(page: str) -> Iterator[str]:
    """Yield what a page tells people to type: between backticks, and in blocks of shell."""
    yield from named(page)
    for block in SHELL.findall(page):
        yield from (QUOTED.sub("WORD", command).strip() for command in ALONE.findall(block))


def wrong(command: str) -> str:
    """Return what is wrong with a command; empty where it can be typed."""
    here, words = get_command(app), command.split()
    while words and words[0] in getattr(here, "commands", {}):
        here = here.commands[words.pop(0)]
    is_group = "commands" in vars(here)  # `fleetctl lab` alone names the group
    if command.split() == words or (is_group and words and here.name != "env"):
        return f"no such command: fleetctl {command}"
    known = {name for each in here.params for name in (*each.opts, *each.secondary_opts)}
    named = {word.split("=")[0] for word in words if word.startswith("--") and word != "--"}
    unknown = named - known - {"--help"}
    return f"no such option: fleetctl {command}: {unknown}" if unknown else ""


def literals(path: Path) -> Iterator[str]:
    """Yield the texts of a module; what an f-string fills in is one word.

    Right after a word it is the next one, which brings its blank along or is not there at all.
    """
    inside = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            parts = [part.value if isinstance(part, ast.Constant) else "X" for part in node.values]
            yield re.sub(r"(?<=[a-z])X(?=[ `])", " X", "".join(map(str, parts)))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield "" if id(node) in inside else node.value


def test_what_the_program_tells_people_to_type_can_be_typed():
    told = {command for path in SOURCES for text in literals(path) for command in named(text)}

    assert len(told) > 30
    assert [fault for command in sorted(told) if (fault := wrong(command))] == []


def test_what_the_docs_tell_people_to_type_can_be_typed():
    told = {command for page in PAGES for command in typed(page.read_text(encoding="utf-8"))}

    assert len(told) > 40
    assert [fault for command in sorted(told) if (fault := wrong(command))] == []


@pytest.mark.parametrize(
    "command", ["rolback", "run SPEC --kep", "lab fly", "results shw", "env edit F --unsett X"]
)
def test_a_command_that_does_not_exist_is_noticed(command):
    assert wrong(command)


@pytest.mark.parametrize("command", ["run SPEC --keep", "env HOST", "lab up --hosts 2", "plan X"])
def test_a_command_that_exists_is_no_fault(command):
    assert wrong(command) == ""
