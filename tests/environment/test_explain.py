"""Where flags come from, told from what a host says; each thing people get wrong has a name."""

from __future__ import annotations

import json

import pytest

from fleetctl.environment.explain import Finding, FlagOrigin, Place, explain, flag_names
from fleetctl.environment.files import Link
from fleetctl.environment.planned import plan_edits
from fleetctl.environment.render import origins_as_json, render_origins, shown_value
from fleetctl.environment.shell.parser import system_parser
from fleetctl.environment.sources import (
    ProcessEnvironment,
    Sources,
    entries_of,
    unit_entries,
    wanted_files,
)
from fleetctl.environment.systemd.unit import Manager
from fleetctl.errors import EditRefused
from fleetctl.transaction.snapshot import PathState, UnitState

PARSER = system_parser()
UNIT = "dsv4.service"
AT = f"/etc/systemd/system/{UNIT}"
SCRIPT = "/srv/dsv4/serve.sh"
LAUNCH = "exec python3 -m payload.engine --port 1\n"


def sources(script: str = LAUNCH, unit: str = "", processes=(), **files: str) -> Sources:
    start = f"[Service]\n{unit}ExecStart={SCRIPT}\n"
    known = {AT: start, SCRIPT: f"#!/bin/bash\n{script}", **files}
    return Sources(
        UNIT,
        {path: text.encode() for path, text in known.items()},
        scripts=(SCRIPT,),
        processes=tuple(processes),
    )


def origin_of(name: str, found: Sources) -> FlagOrigin:
    (origin,) = explain(found, PARSER, [name])
    return origin


def findings(origin: FlagOrigin) -> list[Finding]:
    return [noted.finding for noted in origin.findings]


def server(pid: int, **variables: str) -> ProcessEnvironment:
    return ProcessEnvironment(pid, ("/opt/venv/bin/python3", "-m", "payload.engine"), variables)


def test_a_flag_has_its_value_its_place_and_what_runs():
    origin = origin_of("A", sources(f"export A=1\n{LAUNCH}", processes=[server(7, A="1")]))
    assert (origin.value, origin.setters) == ("1", (Place(SCRIPT, 2, "export", "1"),))
    assert (origin.overridden, origin.findings) == ((), ())
    assert [(p.pid, p.value) for p in origin.running] == [(7, "1")]


def test_a_commented_export_sets_nothing():
    origin = origin_of("A", sources(f"# export A=1\n{LAUNCH}"))
    assert (origin.value, origin.setters) == (None, ())
    assert [(n.finding, n.line) for n in origin.findings] == [(Finding.COMMENTED, 2)]


def test_a_later_export_overrides_an_earlier_one():
    origin = origin_of("A", sources(f"export A=1\nexport A=2\n{LAUNCH}"))
    assert (origin.value, origin.setters[0].line, origin.overridden[0].line) == ("2", 3, 2)
    assert findings(origin) == [Finding.LATER]


def test_a_sourced_file_overrides_the_script():
    script = f'export A=1\n. "$(dirname "$0")/site.sh"\n{LAUNCH}'
    origin = origin_of("A", sources(script, **{"/srv/dsv4/site.sh": "# site\nexport A=3\n"}))
    assert (origin.value, origin.setters) == ("3", (Place("/srv/dsv4/site.sh", 2, "export", "3"),))
    assert findings(origin) == [Finding.SOURCED]


def test_a_sourced_file_that_nobody_has_read_may_set_anything():
    origin = origin_of("A", sources(f"export A=1\n. /etc/site.sh\n{LAUNCH}"))
    assert origin.value == "\0"
    assert Finding.SOURCED in findings(origin)


def test_a_drop_in_overrides_the_unit():
    late = {f"{AT}.d/x.conf": "[Service]\nEnvironment=A=2\n"}
    origin = origin_of("A", sources(unit="Environment=A=1\n", **late))
    assert (origin.value, origin.setters[0].path) == ("2", f"{AT}.d/x.conf")
    assert [(p.path, p.value) for p in origin.overridden] == [(AT, "1")]
    assert findings(origin) == [Finding.UNIT]


def test_the_unit_beats_a_default_of_the_script():
    origin = origin_of("A", sources(f'export A="${{A:-1}}"\n{LAUNCH}', "Environment=A=5\n"))
    assert origin.value == "5"
    assert findings(origin) == [Finding.UNIT]


def test_the_script_overrides_the_unit():
    origin = origin_of("A", sources(f"export A=1\n{LAUNCH}", "Environment=A=5\n"))
    assert (origin.value, [p.value for p in origin.overridden]) == ("1", ["5"])
    assert findings(origin) == [Finding.SCRIPT]


def test_an_export_per_branch_depends_on_the_way():
    script = f'if [ "$(hostname)" = x ]; then export A=1\nelse export A=2; fi\n{LAUNCH}'
    origin = origin_of("A", sources(script))
    assert (origin.value, [p.line for p in origin.setters]) == ("\0", [2, 3])
    assert findings(origin) == [Finding.BRANCHES]


def test_what_is_not_exported_reaches_no_server():
    origin = origin_of("A", sources(f"A=1\n{LAUNCH}"))
    assert origin.value is None
    assert findings(origin) == [Finding.NOT_EXPORTED]


def test_a_computed_value_is_said_to_be_one():
    origin = origin_of("A", sources(f"export A=$(date)\n{LAUNCH}"))
    assert findings(origin) == [Finding.COMPUTED]


def test_processes_that_differ_and_values_that_no_source_explains():
    shell = ProcessEnvironment(1, ("/bin/bash", SCRIPT), {})
    running = [shell, server(2, A="1"), server(3, A="2")]
    origin = origin_of("A", sources(f"export A=1\n{LAUNCH}", processes=running))
    assert findings(origin) == [Finding.DIFFERING, Finding.UNEXPECTED]
    assert "3 has 2" in origin.findings[1].what


def test_a_process_that_can_not_be_read_proves_nothing():
    closed = ProcessEnvironment(2, ("python3",), None)
    origin = origin_of("A", sources(f"export A=1\n{LAUNCH}", processes=[closed]))
    assert origin.findings == ()
    assert render_origins([origin])[1].endswith("(unreadable)")


def test_a_name_that_nobody_sets_has_no_origin():
    origin = origin_of("TYPO", sources(processes=[server(2)]))
    assert (origin.value, origin.setters, origin.findings) == (None, (), ())


def test_by_default_every_flag_that_a_server_may_see_is_explained():
    script = f"export A=1\nlocal_only=2\nB=3\nexport B\n{LAUNCH}"
    names = [o.name for o in explain(sources(script, "Environment=C=1\n"), PARSER)]
    assert names == ["A", "B", "C"]
    assert flag_names(sources(script, "Environment=C=1\n"), PARSER) == ("A", "B", "C")


def test_without_a_unit_file_the_script_is_explained_alone():
    alone = Sources("x.service", {SCRIPT: f"export A=1\n{LAUNCH}".encode()}, scripts=(SCRIPT,))
    assert origin_of("A", alone).value == "1"


def test_the_table_names_places_and_keeps_secrets():
    found = sources(
        f"export A=1\nexport A=2\nexport HF_TOKEN=hf_0123456789\n{LAUNCH}",
        processes=[server(2, A="2")],
    )
    lines = render_origins(explain(found, PARSER))
    assert lines == (
        "FLAG      VALUE                    SET BY                RUNNING",
        f"A         2                        {SCRIPT}:3  2",
        f"    overridden: {SCRIPT}:2 export 1",
        f"    later override: line 3 overrides line 2 ({SCRIPT}:3)",
        f"HF_TOKEN  (secret, 13 characters)  {SCRIPT}:4  (unset)",
        "    value not what the source says: 2 has none; a restart, or a source not known here",
    )
    assert "hf_0123" not in json.dumps(origins_as_json(explain(found, PARSER)))


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "(unset)"), ("", '""'), ("a\nb", '"a\\nb"'), ("\0", "…"), ("x" * 60, "x" * 47 + "…")],
)
def test_values_are_shown_in_one_short_line(value, shown):
    assert shown_value("A", value) == shown


def test_a_value_that_can_not_be_told_is_null_in_json():
    (entry,) = origins_as_json(explain(sources(f"export A=$(date)\n{LAUNCH}"), PARSER, ["A"]))
    assert (entry["value"], entry["known"]) == (None, False)


def test_what_else_to_read_is_asked_for_until_nothing_is():
    script = f'HERE="$(cd "$(dirname "$0")" && pwd)"\nsource "$HERE/a.sh"\n{LAUNCH}'
    found = sources(script, "EnvironmentFile=/etc/e\n")
    assert wanted_files(found, PARSER) == ("/etc/e", "/srv/dsv4/a.sh")
    more = {"/etc/e": "A=1\n", "/srv/dsv4/a.sh": ". /etc/b.sh\n"}
    found = sources(script, "EnvironmentFile=/etc/e\n", **more)
    assert wanted_files(found, PARSER) == ("/etc/b.sh",)


def test_a_unit_alone_asks_for_its_script():
    alone = Sources(UNIT, {AT: f"[Service]\nExecStart={SCRIPT} x\n".encode()})
    assert wanted_files(alone, PARSER) == (SCRIPT,)


def test_what_an_agent_reports_becomes_files_and_links():
    states = (
        PathState("/a", "/b", "file", link_target="b", content=b"1"),
        PathState("/c", "/c", "absent"),
    )
    assert entries_of(states) == {"/a": Link("b"), "/b": b"1"}
    fragment = PathState(AT, AT, "file", content=b"[Service]\n")
    unit = UnitState(UNIT, {"FragmentPath": AT, "Names": f"{UNIT} alias.service"}, (fragment,))
    assert unit_entries(unit) == {
        AT: b"[Service]\n",
        "/etc/systemd/system/alias.service": Link(AT),
    }


# ---- plans


def plan(found: Sources, **edits: str | None) -> list[tuple[str, str]]:
    return [(edit.path, edit.means) for edit in plan_edits(found, edits, PARSER)]


def test_the_plan_edits_the_script_of_the_inventory():
    found = sources(f"export A=1\n{LAUNCH}", "Environment=A=2\nEnvironment=B=1\n")
    assert plan(found, A="0") == [(SCRIPT, "script")]
    assert plan(found, B="0") == [(SCRIPT, "script")]
    assert plan(found, A="1") == []


def test_the_plan_takes_the_unit_where_no_script_is_named():
    found = Sources(UNIT, {AT: b"[Service]\nExecStart=/opt/bin/server\n"})
    assert plan(found, A="0") == [(f"{AT}.d/90-fleetctl.conf", "unit drop-in")]


def test_the_plan_edits_a_script_that_the_unit_reaches_in_an_unknown_way():
    files = {AT: b"[Service]\nExecStart=/opt/bin/launcher\n", SCRIPT: LAUNCH.encode()}
    assert plan(Sources(UNIT, files, scripts=(SCRIPT,)), A="0") == [(SCRIPT, "script")]


def test_the_plan_refuses_when_nothing_is_known():
    with pytest.raises(EditRefused) as caught:
        plan_edits(Sources(UNIT, {}), {"A": "1"}, PARSER)
    assert caught.value.code == "not-found"


def test_the_managers_own_environment_counts():
    files = {AT: b"[Service]\nPassEnvironment=A\nExecStart=/usr/bin/vllm serve x\n"}
    known = Sources(UNIT, files, manager=Manager(variables={"A": "1"}))
    assert plan(known, A="1") == []
    assert origin_of("A", known).setters[0].how == "PassEnvironment="
    assert plan(Sources(UNIT, files), A="1") == [(f"{AT}.d/90-fleetctl.conf", "unit drop-in")]
