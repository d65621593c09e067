"""Shells on the way to a server: what they give, refuse, count otherwise or may not reach."""

from __future__ import annotations

import pytest

from tests.environment.told import HOLE, Host, check


@pytest.mark.parametrize("name", ["PWD", "OLDPWD", "SHLVL", "_"])
@pytest.mark.parametrize("lead", ["cd /\n", "exec env -i PATH=$PATH @R@/child\n"])
def test_what_every_shell_gives_its_children_is_not_taken_for_unset(lead, name, tmp_path):
    files = {"child": "#!/bin/bash\ncd /tmp\nexec vllm serve x\n"}
    told = check(tmp_path, lead.replace("@R@", str(tmp_path)), files, names=[name])
    assert told[name] == HOLE


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ('bash -c "export A=$((1 + 1)) B=2; exec vllm serve x"\nexit\n', HOLE),
        ('export A=1\nbash -c "B=2 exec vllm serve $(echo x)"\nexit\n', "1"),
        ('export A=1\nbash -c "$(echo A=2) vllm serve x"\nexit\n', HOLE),
        ("export A=1\n$(echo env A=2) vllm serve x\nexit\n", HOLE),
        ("export A=1\nnice -n $(echo 1) vllm serve x\nexit\n", "1"),
        ("export A=1\n$(command -v vllm) serve x\nexit\n", "1"),
        ("export A=1\n$(echo vllm) -m x.server\nexit\n", "1"),
        ("export A=1\nset -k\nvllm serve x A=2\nexit\n", HOLE),
        ('export A=1\neval "vllm serve $(echo x)"\nexit\n', "1"),
        ('export A=1\neval set -- "$(echo a b)"\nexport B=$1\n', "1"),
        ('export A=1\neval "$(echo A=2)"\n', HOLE),
    ],
)
def test_a_text_that_is_put_together_is_followed_as_far_as_it_is_known(script, value, tmp_path):
    assert check(tmp_path, script)["A"] == value


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("bash -s -- one <<E\nexport A=\\$1\nvllm serve x\nE\nexit\n", "one"),
        ("bash -es one <<'E'\nexport A=$1\nvllm serve x\nE\nexit\n", "one"),
        ("bash -a @R@/child\nexit\n", "2"),
        ("bash -o allexport @R@/child\nexit\n", "2"),
        ("@R@/child\nexit\n", None),
        ("@R@/all\nexit\n", "2"),
        ("bash @R@/all\nexit\n", None),
        ("export A=1\nbash -lc 'exec @R@/bin/vllm serve x'\nexit\n", HOLE),
        ("export A=1\nbash --login -c 'exec @R@/bin/vllm serve x'\nexit\n", HOLE),
        ("export A=1\n@R@/login\nexit\n", HOLE),
        ("export A=1\nbash -lc 'export A=3; exec @R@/bin/vllm serve x'\nexit\n", "3"),
    ],
)
def test_the_options_of_a_shell_count(script, value, tmp_path):
    body = "A=2\n@R@/bin/vllm serve x\n"
    files = {"child": f"#!/bin/bash\n{body}", "all": f"#!/bin/bash -a\n{body}",
             "login": "#!/bin/bash -l\n@R@/bin/vllm serve x\n"}  # fmt: skip
    script = script.replace("@R@", str(tmp_path))
    assert check(tmp_path, script, files)["A"] == value


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("shopt -s expand_aliases\nalias go='A=7 vllm serve'\nf() { go x; }\nf\nexit\n", "7"),
        ("declare -A A\nshopt -s expand_aliases\nalias go='A=7 vllm serve'\ngo x\nexit\n", "7"),
        ("shopt -s expand_aliases\nalias e='export A=1'\nif true; then\ne\nfi\n", "1"),
        ("shopt -s expand_aliases\nalias e='export A=1'\nf() {\ne\n}\nf || true\n", "1"),
        ("shopt -s expand_aliases\nif true; then\nalias vllm='A=2 vllm'\nvllm serve x\nfi\nexit\n",
         HOLE),
    ],
)  # fmt: skip
def test_an_alias_holds_inside_of_what_is_read_after_it(script, value, tmp_path):
    assert check(tmp_path, script)["A"] == value


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("cd @R@/none 2> /dev/null || true\nexport A=$PWD\n", HOLE),
        ("cd @R@/none 2> /dev/null || cd @R@/lib\nexport A=$PWD\n", HOLE),
        ("if ! cd @R@/none 2> /dev/null; then export A=$PWD; fi\n", HOLE),
        ("cd @R@/lib && . ./own.env\nexport B=$PWD\n", "lib"),
        ("cd @R@/lib || exit 1\n. ./own.env\nexport B=$PWD\n", "lib"),
    ],
)
def test_a_change_of_directory_may_fail(script, value, tmp_path):
    script = script.replace("@R@", str(tmp_path))
    told = check(tmp_path, script, {"lib/own.env": "export A=lib\n"})
    assert told["A"] == value
    assert told["B"] == (f"{tmp_path}/lib" if value == "lib" else None)


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("{ f() { A=2; }; } & wait\nexport A=1\nf 2> /dev/null\n", HOLE),
        ('if [ -n "$X" ]; then f() { A=2; }; fi\nexport A=1\nf 2> /dev/null\n', HOLE),
        ("f() { A=2; }\nexport A=1\nf\n", "2"),
        ("export A=1\nreturn 0 2> /dev/null\nexport A=2\n", "2"),
        ("export A=1\nf() { return 0; A=2; }\nf\n", "1"),
        ("export A=1\nf() { (return 0; A=2; vllm serve y); }\nf\n", "1"),
        ("export A=1\ndeclare -a A\n", HOLE),
        ("export A=1 LD_PRELOAD=\nstdbuf -oL vllm serve x\nexit\n", "1"),
    ],
)
def test_what_is_surely_done_is_told_apart_from_what_may_be(script, value, tmp_path):
    assert check(tmp_path, script, names=["A", "_STDBUF_O"])["A"] == value


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("export PATH=$(echo @R@/lib):$PATH\nexec starter\n", HOLE),
        ("export PATH=@R@/bin:$(echo @R@/lib):$PATH\nexec starter\n", "bin"),
        ("export PATH=@R@/bin:$PATH:$(echo @R@/lib)\nexec starter\n", "bin"),
        ("eval \"$(echo export PATH=@R@/lib:\\$PATH)\"\nexport PATH=$PATH:@R@/bin\nexec starter\n",
         HOLE),
    ],
)  # fmt: skip
def test_a_program_behind_a_directory_that_cannot_be_told_is_not_followed(script, value, tmp_path):
    text = "#!/bin/bash\nexport A=%s\nexec vllm serve x\n"
    files = {"bin/starter": text % "bin", "lib/starter": text % "lib"}
    assert check(tmp_path, script.replace("@R@", str(tmp_path)), files)["A"] == value


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ('unset Z\nexport A=1 B="${!Z}"\n', HOLE),
        ('Z=\nif true; then export A=1 B="${!Z:-x}"; A=4; fi\n', HOLE),
        ('f() { export A=1; B="${!Z}"; export A=3; }\nf\n', HOLE),
        ('Z=A\nexport A=1 B="${!Z}"\n', "1"),
        ('X=(1)\nexport A=1 B="${!X[@]}" C="${!HO*}"\n', "1"),
        ("declare -xi B='1 2'; export A=1\n", HOLE),
        ("declare -i B\nB=x.y; export A=1\n", HOLE),
        ("declare -i B=2*3; export A=1\n", "1"),
        ("declare -xi A=-0\n", HOLE),
        ("declare -xi A=99999999999999999999\n", HOLE),
        ("declare -xi A=-7\n", "-7"),
        ("declare -xc A=abc\n", HOLE),
        ("typeset -i16 A=3\nexport A\n", None),
        ("set -- $(echo a b c)\nexport A=$2 B=$#\n", HOLE),
        ("f() { export A=$2; }\nf x$(echo a b) c\n", HOLE),
        ('set -- "$(echo a b)" c\nexport A=$2\n', "c"),
        ("set -- a b\nshift 5\nexport A=${1-none}\n", "a"),
        ("set -- a b\nshift 2\nexport A=${1-none}\n", "none"),
        ("export A=1\nunset -n A\n", "1"),
        ("export A=1\ndeclare -n R=A\nunset -n R\n", HOLE),
        ("L=('A=2 3' B=1)\nenv \"${L[@]}\" vllm serve x\nexit\n", f"2{HOLE}3"),
        ('L=(A=2 B=1)\nenv "${L[@]}" vllm serve x\nexit\n', "2"),
        ("export A=$BASH_SOURCE\n", "@R@/serve.sh"),
        ("export A=${BASH_SOURCE:-$0}\n", "@R@/serve.sh"),
        ("[[ ab =~ a(.) ]]\nexport A=$BASH_REMATCH B=$PIPESTATUS\n", HOLE),
    ],
)
def test_what_bash_refuses_or_counts_otherwise_is_not_told_as_done(script, value, tmp_path):
    value = value.replace("@R@", str(tmp_path)) if value else value
    assert check(tmp_path, script)["A"] == value


def test_a_name_that_only_bash_knows_is_not_relied_upon_in_a_script_for_sh(tmp_path):
    host = Host(tmp_path)
    script = '#!/bin/sh\ncd "$(dirname "${BASH_SOURCE[0]}")/.."\nexport A=$PWD B=$BASH_SOURCE\n'
    host.lay_out(f"{script}exec vllm serve x\n", {}, {})
    assert host.told("AB") == {"A": HOLE, "B": HOLE}
