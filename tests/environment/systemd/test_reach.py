"""How far a unit's command is followed: relative scripts, shells in between, the manager."""

from __future__ import annotations

import pytest

from fleetctl.environment.explain import Place, explain
from fleetctl.environment.shell.parser import system_parser
from fleetctl.environment.sources import Sources, entries_of, manager_of, wanted_files
from fleetctl.environment.systemd.unit import Manager
from fleetctl.transaction.snapshot import PathState, UnitState

PARSER = system_parser()
UNIT = "dsv4.service"
AT = f"/etc/systemd/system/{UNIT}"
SCRIPT = "/srv/dsv4/serve.sh"
SERVES = "#!/bin/bash\nexport A=2 B=$0\nexec vllm serve x\n"
HOLE = "\0"


def sources(unit: str, manager: Manager | None = None, **files: str) -> Sources:
    texts = {AT: f"[Service]\nEnvironment=A=1\n{unit}", **files}
    found = {path: text.encode() for path, text in texts.items()}
    return Sources(UNIT, found, manager=manager or Manager())


def value_of(name: str, found: Sources) -> str | None:
    (origin,) = explain(found, PARSER, [name])
    return origin.value


@pytest.mark.parametrize(
    ("unit", "program"),
    [
        (f"ExecStart={SCRIPT}\n", SCRIPT),
        ("WorkingDirectory=/srv/dsv4\nExecStart=/bin/bash serve.sh\n", "serve.sh"),
        ("WorkingDirectory=/srv/x\nExecStart=/bin/sh ../dsv4/serve.sh\n", "../dsv4/serve.sh"),
        ("ExecStart=/bin/bash -c 'cd /srv/dsv4 && exec ./serve.sh'\n", "./serve.sh"),
        ("ExecStart=@/bin/bash bash /srv/dsv4/serve.sh\n", SCRIPT),
    ],
)  # fmt: skip
def test_the_script_is_asked_for_and_followed_however_the_unit_names_it(unit, program):
    assert wanted_files(sources(unit), PARSER) == (SCRIPT,)
    found = sources(unit, **{SCRIPT: SERVES})
    assert value_of("A", found) == "2"
    assert value_of("B", found) == program


def test_a_script_that_nobody_has_read_is_not_taken_for_one_that_sets_nothing():
    unit = "ExecStart=/bin/bash -c 'cd /srv/dsv4 && exec ./serve.sh'\n"
    assert value_of("A", sources(unit)) == HOLE


def test_a_script_sources_from_the_working_directory_of_its_unit():
    unit = f"WorkingDirectory=/srv/dsv4\nExecStart={SCRIPT}\n"
    script = {SCRIPT: "#!/bin/bash\n. ./site.env\nexec vllm serve x\n"}
    assert wanted_files(sources(unit, **script), PARSER) == ("/srv/dsv4/site.env",)
    assert value_of("A", sources(unit, **script, **{"/srv/dsv4/site.env": "A=3\n"})) == "3"


def test_what_the_manager_gives_every_service_is_the_weakest_of_all():
    given = manager_of(UnitState(UNIT, {"ManagerEnvironment": "A=8\nC=9\nD=$'a b'\nPATH=/bin"}))
    found = sources("ExecStart=/usr/bin/vllm serve x\n", given)
    assert [value_of(name, found) for name in ("A", "C", "D", "PATH")] == ["1", "9", HOLE, "/bin"]
    (origin,) = explain(found, PARSER, ["C"])
    assert origin.setters == (Place("", 0, "systemctl set-environment", "9"),)
    assert [each.name for each in explain(found, PARSER)] == ["A", "C", "D"]


def test_a_drop_in_of_set_property_counts_before_one_of_the_same_name():
    control = f"/etc/systemd/system.control/{UNIT}.d/50-x.conf"
    files = {
        control: "[Service]\nEnvironment=A=7\n",
        f"{AT}.d/50-x.conf": "[Service]\nEnvironment=A=5\n",
    }
    assert value_of("A", sources("ExecStart=/usr/bin/vllm serve x\n", **files)) == "7"


def test_a_file_below_a_linked_directory_is_known_by_both_its_names():
    state = PathState("/srv/now/serve.sh", "/srv/v5/serve.sh", "file", content=SERVES.encode())
    unit = {AT: b"[Service]\nExecStart=/srv/now/serve.sh\n"}
    found = Sources(UNIT, {**unit, **entries_of([state])})
    assert value_of("A", found) == "2"
    where = b'#!/bin/bash\nexport A="$(dirname "$(readlink -f "$0")")"\nexec vllm serve x\n'
    assert value_of("A", Sources(UNIT, {**found.files, "/srv/v5/serve.sh": where})) == "/srv/v5"


@pytest.mark.parametrize(
    ("command", "value"),
    [
        ("/bin/bash -c 'export A=2; exec vllm serve ${B}'", "2"),
        ("/bin/bash -c 'exec vllm serve ${B}'", "1"),
        ("/bin/bash -c 'A=${B} exec vllm serve x'", "b"),
        ("/bin/bash -c 'A=x${NONE} exec vllm serve x'", "x"),
        ("/bin/bash -c 'A=x${HOME} exec vllm serve x'", f"x{HOLE}"),
        ("/usr/bin/env A=$${B}${B} vllm serve x", "${B}b"),
        ("/bin/bash -lc 'exec vllm serve x'", HOLE),
        ("/bin/bash -ac 'A=3; exec vllm serve x'", "3"),
    ],
)
def test_what_systemd_puts_into_a_command_is_read_as_the_shell_gets_it(command, value):
    assert value_of("A", sources(f"Environment=B=b\nExecStart={command}\n")) == value


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("ExecStartPre=/bin/sh -c 'echo A=$RANDOM > /run/x.env'\n", HOLE),
        ("ExecStartPre=/usr/bin/make-env /run/x.env\n", HOLE),
        ("ExecStartPre=/usr/bin/make-env /run/x.env\nExecStartPre=\n", "7"),
        ("ExecStartPre=/usr/bin/nvidia-smi\n", "7"),
    ],
)
def test_a_file_that_the_unit_writes_before_each_start_is_not_known(line, value):
    unit = f"{line}EnvironmentFile=/run/x.env\nExecStart=/usr/bin/vllm serve x\n"
    assert value_of("A", sources(unit, **{"/run/x.env": "A=7\n"})) == value


def test_a_script_that_cannot_be_followed_is_not_taken_for_one_that_sets_nothing():
    script = {SCRIPT: "#!/bin/bash\nset -k\nexec vllm serve x A=2\n"}
    assert value_of("A", sources(f"ExecStart={SCRIPT}\n", **script)) == HOLE


@pytest.mark.parametrize(
    ("text", "value"),
    [("%H", HOLE), ("%z", HOLE), ("x%zy", f"x{HOLE}y"), ("5%", "5%"), ("%%z", "%z"), ("%_", "%_")],
)
def test_a_specifier_that_this_systemd_may_not_know_is_not_taken_for_text(text, value):
    unit = f"Environment=A={text}\nExecStart=/usr/bin/vllm serve x\n"
    assert value_of("A", sources(unit)) == value
