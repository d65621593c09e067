"""Edits of services: which file, which text, and that nothing else of the service changes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetctl.environment.files import FileMap, Link, Overlay
from fleetctl.environment.shell.parser import system_parser
from fleetctl.environment.systemd.edit import FileEdit, edit_service
from fleetctl.environment.systemd.unit import Manager, load
from fleetctl.errors import EditRefused

PARSER = system_parser()
UNIT = "nova.service"
AT = f"/etc/systemd/system/{UNIT}"
OURS = f"{AT}.d/90-fleetctl.conf"
SERVER = "ExecStart=/opt/venv/bin/python3 -m sglang.launch_server\n"


def tree(unit: str = SERVER, **others: str | Link) -> FileMap:
    """Return the files of a host; `X__y` in a name stands for a path below /etc/systemd/system."""
    files: dict[str, bytes | Link] = {AT: f"[Service]\n{unit}".encode()}
    for path, text in others.items():
        files[path] = text if isinstance(text, Link) else text.encode()
    return FileMap(files)


def edits_of(files: FileMap, wanted: dict, unit: str = UNIT, **options) -> tuple[FileEdit, ...]:
    return edit_service(files, unit, wanted, PARSER, **options)


def written(files: FileMap, wanted: dict, **options) -> dict[str, str | None]:
    found = edits_of(files, wanted, **options)
    return {e.path: None if e.new is None else e.new.decode() for e in found}


def refusal(files: FileMap, wanted: dict, unit: str = UNIT, **options) -> EditRefused:
    with pytest.raises(EditRefused) as caught:
        edits_of(files, wanted, unit, **options)
    return caught.value


def drop_in(*lines: str) -> str:
    return "\n".join(("# managed by fleetctl", "[Service]", *lines)) + "\n"


def test_a_value_goes_into_a_drop_in_of_ours():
    assert written(tree(), {"A": "1", "B": "x y"}) == {
        OURS: drop_in('Environment="A=1"', 'Environment="B=x y"')
    }


def test_a_flag_is_taken_away_after_everybody_has_spoken():
    files = tree(f"Environment=A=1\n{SERVER}")
    assert written(files, {"A": None}) == {OURS: drop_in("UnsetEnvironment=A")}


def test_what_holds_already_writes_nothing():
    files = tree(f'Environment="A=x y"\n{SERVER}')
    assert edits_of(files, {"A": "x y", "B": None}) == ()


def test_an_environment_file_beats_environment_so_ours_comes_last():
    files = tree(f"EnvironmentFile=/etc/nova\n{SERVER}", **{"/etc/nova": "A=1\nB=2\n"})
    env = "/etc/fleetctl/env/nova.service.env"
    assert written(files, {"A": "it's $5"}) == {
        env: '# managed by fleetctl\nA="it\'s \\$5"\n',
        OURS: drop_in(f"EnvironmentFile={env}"),
    }


def test_our_drop_in_is_renamed_when_a_foreign_one_would_come_after_it():
    late = f"{AT}.d/zz-site.conf"
    files = tree(
        SERVER, **{late: "[Service]\nEnvironment=A=5\n", OURS: drop_in('Environment="B=1"')}
    )
    found = written(files, {"A": "1"})
    assert found == {
        OURS: None,
        f"{AT}.d/zzz-fleetctl.conf": drop_in('Environment="B=1"', 'Environment="A=1"'),
    }


def test_lines_of_ours_about_other_flags_stay():
    mine = drop_in('Environment="A=1"', 'Environment="B=1"', "UnsetEnvironment=C")
    files = tree(SERVER, **{OURS: mine})
    assert written(files, {"A": "2"}) == {OURS: mine.replace("A=1", "A=2")}
    assert written(files, {"C": "1"}) == {
        OURS: drop_in('Environment="A=1"', 'Environment="B=1"', 'Environment="C=1"')
    }


def test_a_flag_that_somebody_unsets_is_set_by_saying_the_rest_of_the_list_again():
    files = tree(f"UnsetEnvironment=A B\nUnsetEnvironment=C=1\n{SERVER}")
    assert written(files, {"A": "1"}) == {
        OURS: drop_in(
            'Environment="A=1"', "UnsetEnvironment=", "UnsetEnvironment=B", 'UnsetEnvironment="C=1"'
        )
    }


def test_a_script_that_keeps_the_units_value_is_left_alone():
    script = '#!/bin/bash\nexport A="${A:-2}"\nexec vllm serve x\n'
    files = tree("ExecStart=/opt/serve.sh\n", **{"/opt/serve.sh": script})
    assert written(files, {"A": "1"}) == {OURS: drop_in('Environment="A=1"')}


def test_a_script_that_sets_it_itself_is_edited_behind_its_link():
    script = "#!/bin/bash\nexport A=2\nexec vllm serve x\n"
    files = tree(
        "ExecStart=/opt/serve.sh\n",
        **{"/opt/serve.sh": Link("v1/serve.sh"), "/opt/v1/serve.sh": script},
    )
    (edit,) = edits_of(files, {"A": "1"})
    assert (edit.path, edit.means) == ("/opt/v1/serve.sh", "script")
    assert edit.new == script.replace("A=2", "A=1").encode()
    assert edit.why == "A: edited in place"


def test_the_serve_script_comes_first_where_that_is_asked_for():
    script = "#!/bin/bash\nexec vllm serve x\n"
    files = tree("ExecStart=/opt/serve.sh\n", **{"/opt/serve.sh": script})
    assert written(files, {"A": "1"}, scripts_first=True) == {
        "/opt/serve.sh": "#!/bin/bash\nexport A=1\nexec vllm serve x\n"
    }


def test_a_drop_in_steps_in_where_the_script_can_not_be_edited_and_the_unit_wins():
    script = "#!/bin/sh\nvllm serve x\n"
    vendor = tree("ExecStart=/usr/libexec/serve\n", **{"/usr/libexec/serve": script})
    assert written(vendor, {"A": "1"}, scripts_first=True) == {OURS: drop_in('Environment="A=1"')}


@pytest.mark.parametrize(
    ("start", "edits", "after"),
    [
        ("/usr/bin/env A=1 B=2 vllm serve x", {"A": "0"}, '/usr/bin/env "A=0" B=2 vllm serve x'),
        ("/usr/bin/env A=1 B=2 vllm serve x", {"A": None}, "/usr/bin/env B=2 vllm serve x"),
        ("env -i PATH=/bin vllm serve x", {"A": "a%n $x"},
         'env -i "A=a%%n $$x" PATH=/bin vllm serve x'),
        ("-/usr/bin/docker run -e A=1 img vllm serve x", {"A": "0"},
         '-/usr/bin/docker run -e "A=0" img vllm serve x'),
        ("docker run img vllm serve x", {"A": "0"}, 'docker run -e "A=0" img vllm serve x'),
        ("bash -c 'export A=1; exec vllm serve x'", {"A": "0"},
         'bash -c "export A=0; exec vllm serve x"'),
    ],
)  # fmt: skip
def test_a_command_that_sets_it_is_replaced_in_our_drop_in(start, edits, after):
    (text,) = written(tree(f"ExecStart={start}\n"), edits).values()
    lines = text.splitlines()
    assert lines[lines.index("ExecStart=") + 1] == f"ExecStart={after}"


@pytest.mark.parametrize(
    ("unit", "files", "code"),
    [
        ("none.service", tree(), "not-found"),
        ("nova.timer", tree(), "unsupported"),
        ("../x.service", tree(), "invalid-unit"),
        ("nova@1.service", tree(), "not-found"),
        (UNIT, FileMap({AT: Link("/dev/null")}), "unsupported"),
        (UNIT, FileMap({AT: b""}), "unsupported"),
        (UNIT, FileMap({f"/run/systemd/generator/{UNIT}": b"[Service]\n"}), "unsupported"),
        (UNIT, tree(f"EnvironmentFile=/etc/none\n{SERVER}"), "missing-file"),
        (UNIT, tree("ExecStart=ssh host vllm serve x\n"), "unsupported"),
        (UNIT, tree("ExecStart=docker run $ARGS img vllm serve x\n"), "unsupported"),
        (UNIT, tree("ExecStart=bash -c 'A=1 vllm serve $X'\n"), "unsupported"),
        (UNIT, tree("ExecStart=/usr/lib/nova.sh\n", **{"/usr/lib/nova.sh":
         "#!/bin/sh\nexport A=1\nvllm serve x\n"}), "unsupported"),
    ],
)  # fmt: skip
def test_what_can_not_be_exact_is_refused(unit, files, code):
    error = refusal(files, {"A": "0"}, unit)
    assert error.code == code
    assert error.why
    assert error.next_step


@pytest.mark.parametrize("value", ["\1", "\x7f", "a\rb", "\ufffe", "\ufdd0"])
def test_a_value_that_systemd_drops_is_refused(value):
    assert refusal(tree(), {"A": value}).code == "invalid-value"


def test_a_template_is_edited_for_all_instances_unless_one_has_its_own_value():
    at = "/etc/systemd/system/nova@"
    files = FileMap({f"{at}.service": f"[Service]\n{SERVER}".encode()})
    assert written(files, {"A": "1"}, unit="nova@.service") == {
        f"{at}.service.d/90-fleetctl.conf": drop_in('Environment="A=1"')
    }
    assert written(files, {"A": "1"}, unit="nova@3.service") == {
        f"{at}3.service.d/90-fleetctl.conf": drop_in('Environment="A=1"')
    }
    own = FileMap({**files.entries, f"{at}7.service.d/10-x.conf": b"[Service]\nEnvironment=A=7\n"})
    assert refusal(own, {"A": "1"}, "nova@.service").code == "ambiguous"
    assert written(own, {"B": "1"}, unit="nova@.service")


def test_a_users_unit_keeps_its_files_in_the_users_home():
    home = "/home/svc"
    at = f"{home}/.config/systemd/user/{UNIT}"
    files = FileMap(
        {at: f"[Service]\nEnvironmentFile=%h/e\n{SERVER}".encode(), f"{home}/e": b"A=1\n"}
    )
    found = written(files, {"A": "0", "B": "2"}, manager=Manager(home=home))
    assert set(found) == {f"{at}.d/90-fleetctl.conf", f"{home}/.config/fleetctl/env/{UNIT}.env"}


NAMES = st.sampled_from(["A", "B", "C"])
VALUES = st.none() | st.text(
    st.characters(blacklist_categories=["Cs", "Cc", "Cn"]) | st.sampled_from("\n\t\"'\\%$ "),
    max_size=8,
)
UNIT_LINES = st.lists(
    st.sampled_from(
        ["Environment=A=1 B=2", "Environment=", "EnvironmentFile=-/e", "EnvironmentFile=",
         "UnsetEnvironment=A", "UnsetEnvironment=B=2 C", "PassEnvironment=A C", "UnsetEnvironment="]
    ),
    max_size=5,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(UNIT_LINES, UNIT_LINES, st.dictionaries(NAMES, VALUES, min_size=1, max_size=3))
def test_any_unit_gets_any_values_and_nothing_else_changes(lines, late, wanted):
    unit = "\n".join([*lines, SERVER])
    site = f"{AT}.d/z-site.conf"
    files = tree(unit, **{"/e": "B=3\nD=4\n", site: "[Service]\n" + "\n".join(late) + "\n"})
    manager = Manager(variables={"A": "passed", "C": "passed"})
    before = load(files, UNIT, manager).environment()
    found = edits_of(files, wanted, manager=manager)
    after = Overlay(files, {edit.path: edit.new for edit in found})
    expected = {n: v for n, v in before.items() if n not in wanted}
    expected |= {n: v for n, v in wanted.items() if v is not None}
    assert load(after, UNIT, manager).environment() == expected
    assert edit_service(after, UNIT, wanted, PARSER, manager=manager) == ()
    assert all("fleetctl" in edit.path for edit in found)


def test_instances_show_by_their_environment_files_and_by_being_enabled():
    at = "/etc/systemd/system/nova@.service"
    unit = (
        f"[Service]\nEnvironmentFile=/etc/nova/common\nEnvironmentFile=/etc/nova/%i.env\n{SERVER}"
    )
    files = FileMap(
        {at: unit.encode(), "/etc/nova/common": b"A=1\n", "/etc/nova/0.env": b"GPU=0\n"}
    )
    found = edits_of(files, {"A": "2"}, "nova@.service")
    after = Overlay(files, {edit.path: edit.new for edit in found})
    assert load(after, "nova@0.service", Manager()).environment() == {"A": "2", "GPU": "0"}
    assert refusal(files, {"GPU": "1"}, "nova@.service").code == "ambiguous"
    wanted = {"/etc/systemd/system/multi-user.target.wants/nova@5.service": Link(at)}
    enabled = FileMap({**files.entries, **wanted, "/etc/nova/5.env": b"A=5\n"})
    assert refusal(enabled, {"A": "1"}, "nova@.service").code == "ambiguous"


def test_a_line_that_only_some_versions_take_for_a_comment_is_outdone_too():
    files = tree(f"EnvironmentFile=/e\n{SERVER}", **{"/e": "# keep \\\nA=1\n"})
    assert "/etc/fleetctl/env/nova.service.env" in written(files, {"A": "0"})


def test_a_flag_that_command_and_unit_set_is_taken_out_of_both():
    files = tree("Environment=A=1\nExecStart=/usr/bin/env A=2 B=3 vllm serve x\n")
    assert written(files, {"A": None}) == {
        OURS: drop_in("ExecStart=", "ExecStart=/usr/bin/env B=3 vllm serve x", "UnsetEnvironment=A")
    }


@pytest.mark.parametrize("char", ["\u2028", "\u2029", "\u0085", "\u00a0", "\u3000", "\ufeff"])
def test_a_character_that_only_unicode_calls_a_line_end_stays_in_its_value(char):
    first = written(tree(), {"A": f"x{char}y", "B": "1"})
    found = FileMap({AT: f"[Service]\n{SERVER}".encode(), OURS: first[OURS].encode()})

    again = written(found, {"B": "2"})

    assert f'"A=x{char}y"' in again[OURS]
    assert '"B=2"' in again[OURS]
