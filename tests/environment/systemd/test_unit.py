"""What systemd gives a service: compared with systemd itself, over units made at random."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fleetctl.environment.files import DiskFiles, FileMap, Link, Overlay, read, resolved
from fleetctl.environment.quoting import unit_quoted
from fleetctl.environment.systemd.syntax import entries, words
from fleetctl.environment.systemd.unit import Manager, drop_ins, load

UNIT = "nova-decode.service"
WORDS = st.sampled_from(
    ["A=1", "B=2", '"A=x y"', "'B=it is'", 'A="in"side', "A=%n", "B=100%%", "A=a\\x41b", "C=\\101",
     "A", "A.B=1", '"A=open', "A=\\q", "B=\\u00e9", "A=é", "B=\\ttab", "A=", "B=a=b", "A=$HOME"]
)  # fmt: skip
LINES = st.sampled_from(
    ["[Service]", "[Unit]", "# c \\", ";Environment=A=9", "environment=A=8", "Environment=",
     "EnvironmentFile=", "UnsetEnvironment=", "UnsetEnvironment=A", "UnsetEnvironment=B=2 C",
     "EnvironmentFile=-{root}/etc/a.env", "EnvironmentFile=-{root}/etc/none.env",
     "EnvironmentFile={root}/etc/*.env", "junk", ""]
)  # fmt: skip
LINE = (
    LINES
    | st.lists(WORDS, min_size=1, max_size=3).map(lambda w: "Environment=" + " ".join(w))
    | st.lists(WORDS, min_size=2, max_size=3).map(lambda w: "Environment=" + " \\\n  ".join(w))
)
BODY = st.lists(LINE, max_size=6).map("\n".join)
FOLDERS = (
    f"etc/systemd/system/{UNIT}.d",
    f"usr/lib/systemd/system/{UNIT}.d",
    "etc/systemd/system/nova-.service.d",
    "etc/systemd/system/service.d",
)
DROP_INS = st.dictionaries(
    st.tuples(st.sampled_from(FOLDERS), st.sampled_from(["10-a.conf", "zz.conf", "90-f.conf"])),
    BODY,
    max_size=3,
)


@pytest.fixture(scope="session")
def readable():
    """A directory that everybody may enter: systemd's parser runs as nobody."""
    with tempfile.TemporaryDirectory(prefix="units.") as folder:
        Path(folder).chmod(0o755)
        yield folder


def lay_out(root: Path, unit: str, found: dict) -> None:
    files = {f"etc/systemd/system/{UNIT}": f"[Service]\nExecStart=/bin/true\n{unit}\n"}
    files |= {f"{folder}/{name}": f"[Service]\n{text}" for (folder, name), text in found.items()}
    files |= {"etc/a.env": "A=filed\nB='q'\n", "etc/b.env": "C=3\n"}
    for path, text in files.items():
        at = root / path
        at.parent.mkdir(parents=True, exist_ok=True)
        # systemd reads the files where they are; ours are below a root
        at.write_bytes(text.replace("{root}", "").encode())


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(unit=BODY, found=DROP_INS)
@example(unit='Environment="A=open \\\n  "A=x y"', found={})
@example(unit='Environment="A=a\\\n\tb" \\\n  B=c', found={})
def test_the_environment_is_the_one_systemd_computes(unit, found, systemd, judge, readable):
    root = Path(tempfile.mkdtemp(dir=readable))
    lay_out(root, unit, found)
    below = judge.Root(root)
    settings_, _ = systemd.settings(below, UNIT, "system")
    theirs = judge.merge(below, *settings_, {}, systemd.load)
    service = load(DiskFiles(root), UNIT, Manager(variables={}))
    ours = {name.encode(): value.encode() for name, value in service.environment().items()}
    assert ours == theirs


@settings(max_examples=60, deadline=None)
@given(
    value=st.text(
        st.characters(blacklist_categories=["Cs", "Cc", "Cn"]) | st.sampled_from("\n\t\"'\\%$ "),
        max_size=20,
    )
)
def test_any_value_survives_the_quoting_of_a_unit(value):
    (entry,) = entries(f"[Service]\nEnvironment={unit_quoted('A=' + value)}\n".encode())
    (word,) = words(entry.value)
    assert word.text == "A=" + value.replace("%", "%%")


def files_of(**files: str | Link) -> FileMap:
    return FileMap(
        {
            path.replace("__", "/"): text if isinstance(text, Link) else text.encode()
            for path, text in files.items()
        }
    )


def test_each_setting_is_kept_with_its_place():
    files = FileMap(
        {
            f"/etc/systemd/system/{UNIT}": b"[Service]\nEnvironment=A=1\nEnvironmentFile=/e\n",
            f"/etc/systemd/system/{UNIT}.d/x.conf": b"[Service]\nEnvironment=A=2\n",
            "/e": b"# c\nA=3\n",
        }
    )
    found = load(files, UNIT, Manager()).settings["A"]
    assert [(s.value, s.how, s.path, s.line) for s in found] == [
        ("1", "Environment=", f"/etc/systemd/system/{UNIT}", 2),
        ("2", "Environment=", f"/etc/systemd/system/{UNIT}.d/x.conf", 2),
        ("3", "EnvironmentFile=", "/e", 2),
    ]


def test_what_only_the_manager_knows_is_unknown():
    files = FileMap({f"/etc/systemd/system/{UNIT}": b"[Service]\nPassEnvironment=A B\n"})
    unknown = load(files, UNIT, Manager())
    assert unknown.environment() == {"A": "\0", "B": "\0"}
    known = load(files, UNIT, Manager(variables={"A": "1"}))
    assert known.environment() == {"A": "1"}


def test_drop_ins_are_read_by_name_and_the_first_of_a_name_counts():
    folder = f"/etc/systemd/system/{UNIT}.d"
    files = FileMap(
        {
            f"/usr/lib/systemd/system/{UNIT}": b"[Service]\n",
            f"/usr/lib/systemd/system/{UNIT}.d/20.conf": b"",
            f"/usr/lib/systemd/system/{UNIT}.d/10.conf": b"",
            f"/usr/lib/systemd/system/{UNIT}.d/30.conf": b"",
            "/etc/systemd/system/nova-.service.d/30.conf": b"",
            f"{folder}/20.conf": b"",
            f"{folder}/99.conf.bak": b"",
            "/etc/systemd/system/service.d/50.conf": b"",
        }
    )
    assert drop_ins(files, UNIT, Manager()) == [
        f"/usr/lib/systemd/system/{UNIT}.d/10.conf",
        f"{folder}/20.conf",
        "/etc/systemd/system/nova-.service.d/30.conf",
        "/etc/systemd/system/service.d/50.conf",
    ]


def test_links_are_followed_and_an_overlay_hides_what_is_below():
    files = FileMap({"/a/b": Link("../c"), "/c": Link("/d"), "/d/x": b"1", "/n": Link("/dev/null")})
    assert resolved(files, "/a/b/x") == "/d/x"
    assert (read(files, "/a/b/x"), read(files, "/n"), read(files, "/none")) == (b"1", b"", None)
    over = Overlay(files, {"/d/x": None, "/d/y": b"2"})
    assert (over.names("/d"), read(over, "/a/b/y"), read(over, "/d/x")) == (("y",), b"2", None)


@pytest.mark.parametrize("loop", ["/a", "b", "../x/a"])
def test_links_that_go_round_are_no_file(loop):
    files = FileMap({"/x/a": Link(loop), "/x/b": Link("a"), "/a": Link("/x/a")})
    assert read(files, "/x/a") is None
