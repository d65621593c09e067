"""Edits of scripts as texts: what is written, what stays, what is refused and why."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleetctl.environment.shell.edit import Change, Context, Edited, edit_script
from fleetctl.environment.shell.observation import Library
from fleetctl.environment.shell.parser import system_parser
from fleetctl.errors import EditRefused

PARSER = system_parser()
VALUES = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=40
) | st.text(st.sampled_from("'\"\\$`!# \n\t~*?[]{}()<>;&|=-a1é"), max_size=12)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{1,8}", fullmatch=True).map(lambda n: f"NOVA_{n}")


def edited(text: str, **edits: str | None) -> str:
    return edit_script(text.encode(), edits, PARSER).content.decode()


def refusal(text: str, **edits: str | None) -> EditRefused:
    with pytest.raises(EditRefused) as caught:
        edit_script(text.encode(), edits, PARSER)
    return caught.value


def environment_of(script: bytes, tmp_path, shell: str) -> dict[bytes, bytes]:
    """Run a script whose server writes down its environment."""
    (tmp_path / "vllm").write_text(f"#!/bin/sh\ncat /proc/$$/environ > {tmp_path}/seen\n")
    (tmp_path / "vllm").chmod(0o755)
    (tmp_path / "serve.sh").write_bytes(script)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "A": "caller"}
    subprocess.run([shell, tmp_path / "serve.sh"], env=environment, check=True, timeout=20)
    items = (tmp_path / "seen").read_bytes().split(b"\0")
    return dict(item.split(b"=", 1) for item in items if item)


PLACES = {
    "in place": "export A=1  # keep\nexec vllm serve x\n",
    "double quotes": 'export A="1"\nexec vllm serve x\n',
    "one quoted word": 'export "A=1"\nexec vllm serve x\n',
    "inserted": "exec vllm serve x\n",
    "prefix": "A=1 vllm serve x\n",
    "env": "exec env A=1 vllm serve x\n",
    "in a string": "exec sh -c 'A=1 exec vllm serve x'\n",
    "in a doubly quoted string": 'exec sh -c "export A=1; exec vllm serve x"\n',
    "in a here-document": "sh <<'EOS'\nexport A=1\nexec vllm serve x\nEOS\n",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_any_value_arrives_byte_for_byte(place, shell, tmp_path_factory):
    @settings(max_examples=15, deadline=None)
    @given(VALUES)
    @example("\n\n")
    def arrives(value: str) -> None:
        after = edit_script(PLACES[place].encode(), {"A": value}, PARSER).content
        seen = environment_of(after, tmp_path_factory.mktemp("run"), shell)
        assert seen[b"A"] == value.encode()
        assert edit_script(after, {"A": value}, PARSER).content == after

    arrives()


LINES = st.lists(
    st.sampled_from(
        [
            "# export A=1", "export A=1", "export A=2 # c", "A=3", "export A", "unset A",
            "export B=$A", "if true; then", "  export A=4", "fi", "f() { export A=5; }", "f",
            "source ./x.sh", "echo 'A=9'", "", "cat <<X", "export A=7", "X", "A=1 true",
            "set -a", "set +a", 'eval "export A=8"', "for A in 1; do", "done",
            "export A=é # ß", "trap 'A=1' USR1", "readonly A=2",
        ]
    ),
    max_size=9,
)  # fmt: skip


def attempt(text: str, value: str | None) -> Edited | None:
    try:
        return edit_script(text.encode(), {"A": value}, PARSER)
    except EditRefused:
        return None


@settings(max_examples=150, deadline=None)
@given(LINES, st.none() | VALUES)
def test_other_lines_stay_and_a_second_edit_changes_nothing(lines, value):
    text = "\n".join([*lines, "exec vllm serve x"])
    once = attempt(text, value)
    if once is None:
        return
    kept = [line for line in text.split("\n") if "A" not in line]
    rest = iter(once.content.decode().split("\n"))
    assert all(line in rest for line in kept), once.content.decode()
    assert once.content.endswith(b"exec vllm serve x")
    again = edit_script(once.content, {"A": value}, PARSER)
    assert (again.content, again.changes) == (once.content, ())


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(NAMES, st.none() | VALUES, min_size=1, max_size=4))
def test_several_flags_are_set_together_or_one_by_one_alike(edits):
    text = "#!/bin/bash\nexport NOVA_x=1\nexec vllm serve x\n"
    together = edit_script(text.encode(), edits, PARSER).content
    one_by_one = text.encode()
    for name, value in edits.items():
        one_by_one = edit_script(one_by_one, {name: value}, PARSER).content
    assert together == one_by_one


def test_a_satisfied_edit_returns_the_same_bytes_and_no_change():
    text = b'export A="0"   # set by ops\nB=$A\nexport B\nexec vllm serve x\n'
    result = edit_script(text, {"A": "0", "B": "0"}, PARSER)
    assert result.content is text
    assert result.changes == ()


def test_changes_name_the_means_and_the_line():
    result = edit_script(b"export A=1\nexec vllm serve x\n", {"A": "0", "B": "2"}, PARSER)
    assert result.changes == (
        Change("A", "edited in place", 1),
        Change("B", "inserted before the launch", 2),
    )


@pytest.mark.parametrize(
    ("setters", "told"),
    [
        ("", "A unset before the launch (line 1)"),
        (
            "export A=1\n",
            "A unset before the launch (line 2; line 1, which sets it, stays: with it deleted, "
            "a value from outside could reach the server)",
        ),
        (
            "export A=1\nif test -e x; then\nA=2\nfi\n",
            "A unset before the launch (line 5; lines 1, 3, which set it, stay: with them deleted, "
            "a value from outside could reach the server)",
        ),
    ],
)
def test_a_flag_that_is_taken_away_says_what_was_done_and_why_its_setters_stay(setters, told):
    text = f"{setters}exec vllm serve x\n".encode()
    result = edit_script(text, {"A": None}, PARSER)

    assert result.content == text.replace(b"exec", b"unset A\nexec")
    assert [str(change) for change in result.changes] == [told]


@pytest.mark.parametrize(
    ("before", "edits", "after"),
    [
        # quoting style, comment and line end stay
        ('export A="1"\t# c\r\nexec vllm serve x\n', {"A": "0"},
         'export A="0"\t# c\r\nexec vllm serve x\n'),
        ("export A='1'\nexec vllm serve x", {"A": "b c"}, "export A='b c'\nexec vllm serve x"),
        # data never goes between double quotes
        ('export A="1"\nexec vllm serve x\n', {"A": "$x"}, "export A='$x'\nexec vllm serve x\n"),
        # indentation is copied; the order of the edits is kept
        ("if true; then\n\tvllm serve x\nfi\n", {"A": "1", "B": "2"},
         "if true; then\n\texport A=1\n\texport B=2\n\tvllm serve x\nfi\n"),
        # null: taking the assignment out is not enough, the caller may export it
        ("A=1 B=2 vllm serve x\n", {"A": None}, "unset A\nB=2 vllm serve x\n"),
        ("B=2 \\\n  A=1 \\\n  vllm serve x\n", {"A": None}, "unset A\nB=2 \\\n  vllm serve x\n"),
        ("B=2 \\\n  C=3 A=1 \\\n  vllm serve x\n", {"A": None},
         "unset A\nB=2 \\\n  C=3 \\\n  vllm serve x\n"),
        # a command that reads the flag keeps its arguments
        ("set -u\nA=${A:-1}\nexport A\nexec vllm serve $A\n", {"A": None},
         "set -u\nA=${A:-1}\nexport A\nexec env -u A vllm serve $A\n"),
        # an option of a container gets a line of its own where the others have one
        ("docker run \\\n  -e B=1 \\\n  img api_server\n", {"A": "1"},
         "docker run \\\n  -e A=1 \\\n  -e B=1 \\\n  img api_server\n"),
        # the left side of a chain may write it, so it goes into the command
        ("cd / && . ./x.sh && exec vllm serve x\n", {"A": "1"},
         "cd / && . ./x.sh && A=1 exec vllm serve x\n"),
        # between backquotes nothing can be quoted simply
        ("x=`vllm serve x`\n", {"A": "it's"}, "export A='it'\\''s'\nx=`vllm serve x`\n"),
        # a value that starts something is not thrown away
        ("export A=$(start_daemon)\nexec vllm serve x\n", {"A": "1"},
         "export A=$(start_daemon)\nexport A=1\nexec vllm serve x\n"),
        ("export A=$(hostname -s)\nexec vllm serve x\n", {"A": "1"},
         "export A=1\nexec vllm serve x\n"),
        # a function may carry the name of a variable
        ("A() { :; }\nA\nexec vllm serve x\n", {"A": None},
         "A() { :; }\nA\nunset -v A\nexec vllm serve x\n"),
    ],
)  # fmt: skip
def test_the_text_that_is_written(before, edits, after):
    assert edited(before, **edits) == after


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("#!/usr/bin/env python3\nimport os\n", "unsupported", 1),
        ("#!/usr/bin/fish\nvllm serve x\n", "unsupported", 1),
        ("", "unsupported", 1),
        ("\0\x7fELF", "unsupported", 1),
        ("export A=1\r\nvllm serve x\r\n", "unsupported", 1),
        ("#!/bin/bash\nif true; then\nvllm serve x\n", "syntax", 4),
        ("#!/bin/bash\nmkdir -p x\n", "no-server", None),
        ("#!/bin/bash\nserve() { vllm serve x; }\n", "no-server", None),
        ("#!/bin/bash\nexport A=1\n", "no-server", None),
        ("A=1 vllm serve x &\nA=2 vllm serve y &\nwait\n", "ambiguous", 2),
        ("if x; then A=1; fi\nreadonly A\nexport A\nexec vllm serve x\n", "readonly", 4),
        ("A=(1 2)\nexec vllm serve x\n", "ambiguous", 2),
        ("declare -ix A=1\nexec vllm serve x\n", "unsupported", 2),
        ("ssh h 'vllm serve x'\n", "unsupported", 1),
        ("sudo vllm serve x\n", "unsupported", 1),
        ("trap 'A=1' USR1\nexec vllm serve x\n", "unsupported", None),
    ],
)
def test_a_refusal_says_why_and_where(text, code, line):
    error = refusal(text, A="not 1")
    assert (error.code, error.line) == (code, line)
    assert error.why
    assert error.next_step


@pytest.mark.parametrize("name", ["", "_", "A-B", "1A", "A B", "Ä", "A\n", "A=1", "BASH_FUNC_x%%"])
def test_what_is_no_name_is_refused_before_anything_else(name):
    assert refusal("", **{name: "1"}).code == "invalid-name"


@pytest.mark.parametrize("value", ["\0", "\udc80", "x" * 131_070])
def test_what_no_environment_holds_is_refused(value):
    assert refusal("vllm serve x\n", A=value).code == "invalid-value"


def test_the_longest_value_that_linux_passes_on_is_taken(tmp_path):
    value = "x" * (131_071 - 2)
    after = edited("exec vllm serve x\n", A=value)
    assert environment_of(after.encode(), tmp_path, "bash")[b"A"] == value.encode()


@pytest.mark.parametrize(("name", "code"), [("UID", "readonly"), ("RANDOM", "unsupported")])
def test_names_that_belong_to_the_shell_are_refused(name, code):
    assert refusal("exec vllm serve x\n", **{name: "1"}).code == code


def test_one_bad_edit_refuses_all():
    text = "A=1 vllm serve x &\nA=2 vllm serve y &\nwait\n"
    assert refusal(text, B="1", A="3").code == "ambiguous"


class Folder(Library):
    """Files beside the script."""

    def __init__(self, **files: bytes) -> None:
        self.files = {f"/srv/{name}.sh": content for name, content in files.items()}

    def find(self, path: str) -> tuple[str, bytes] | None:
        return (path, self.files[path]) if path in self.files else None


def with_files(text: str, **files: bytes) -> str:
    context = Context(path="/srv/serve.sh", library=Folder(**files))
    return edit_script(text.encode(), {"A": "0"}, PARSER, context=context).content.decode()


def test_a_sourced_file_that_is_known_and_harmless_does_not_hide_the_export():
    text = 'export A=1\n. "$(dirname "$0")/site.sh"\nexec vllm serve x\n'
    assert with_files(text, site=b"B=1\n") == text.replace("A=1", "A=0")
    assert "export A=0\nexec" in with_files(text, site=b"export A=2\n")
    assert "export A=0\nexec" in with_files(text)


def test_a_script_that_is_run_is_followed():
    text = "export A=1\nexec bash /srv/inner.sh\n"
    assert with_files(text, inner=b"exec vllm serve x\n") == text.replace("A=1", "A=0")


def test_a_script_that_overrides_what_it_is_given_is_refused_here():
    with pytest.raises(EditRefused):
        with_files("exec bash /srv/inner.sh\n", inner=b"export A=1\nexec vllm serve x\n")


def test_a_file_of_exports_that_others_source_is_edited_too():
    assert edited("export B=1", A="0") == "export B=1\nexport A=0\n"
    assert edited("export A=1 # c\n", A="0") == "export A=0 # c\n"
    assert edited("set -a\nexport A=1\n", A=None) == "set -a\nexport A=1\nunset A\n"


@pytest.mark.parametrize(
    "text",
    [
        " && ".join(["true"] * 500) + " && vllm serve x\n",
        "".join(f"f{i}() {{ f{i + 1}; f{i + 1}; }}\n" for i in range(24)) + "f24() { :; }\nf0\n",
    ],
    ids=["deep", "wide"],
)
def test_a_script_without_bounds_is_refused_not_followed_for_ever(text):
    assert refusal(text, A="1").code == "unsupported"


def test_edits_of_one_command_stand_in_the_order_that_works():
    text = "g() { local A=1; export A; vllm serve x; }\ng\n"
    assert edited(text, A=None, B="2") == (
        "g() { local A=1; export A; export B=2; env -u A vllm serve x; }\ng\n"
    )
    text = "cd / && . ./x.sh && vllm serve x\n"
    assert edited(text, A=None, B="2") == "cd / && . ./x.sh && B=2 env -u A vllm serve x\n"
    assert edited("A=1 B=2 C=3 \\\n  vllm serve x\n", A=None, B=None) == (
        "unset A\nunset B\nC=3 \\\n  vllm serve x\n"
    )
    assert edited("C=3 \\\n A=1 B=2 \\\n  vllm serve x\n", A=None, B=None) == (
        "unset A\nunset B\nC=3 \\\n  \\\n  vllm serve x\n"
    )


def test_bytes_that_are_no_text_stay_what_they_are():
    text = b"# caf\xe9\nexport A=1 # \xff\nB='\xfe' C\xe9=1 vllm serve \xe9\n"
    after = edit_script(text, {"A": "0", "B": "2"}, PARSER).content
    assert after == b"# caf\xe9\nexport A=0 # \xff\nB='2' C\xe9=1 vllm serve \xe9\n"


@pytest.mark.parametrize("value", ["x\nfi\nit's\n}", "fi", "}\n}\n{"])
def test_a_value_of_lines_that_look_like_the_script_passes_the_referee(value):
    text = "f() {\n:\n}\nif true; then\n:\nfi\nexport A='{\n}\nfi'\nf\nexec vllm serve x\n"
    after = edited(text, A=value)
    assert edited(after, A=value) == after
