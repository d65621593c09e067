"""What fleetctl says of a flag is what bash gives the server, or it says that it can't tell."""

from __future__ import annotations

import pytest

from tests.environment.told import HOLE, Host, check


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ('export A="one \\\n two"\n', "one  two"),
        ('export A="a\\\n\\\nb\\d\\$x"\n', "ab\\d$x"),
        ("export A=\"${A:-'q'}\"\n", "'q'"),
        ("export A=\"${A:-'{\"k\": 1}'}\" B=\"${B:-~/x}\"\n", HOLE),
        ("A=0\nexport A=1 B=$A\n", "1"),
        ("A=0\ndeclare -x A=1 B=$A\n", "1"),
        ("export A=1 # note \\\nexport B=2\n", "1"),
        ("A=2 vllm serve y # note \\\nA=1 vllm serve z\nexit\n", HOLE),
        ("# note \\\nexport A=1 #\\\n# more \\\\\\\nexport B=2\n", "1"),
        ("export A=1\ntrap 'A=9' DEBUG\n", HOLE),
        ("LIST=A=1,B=2\nIFS=,\nexport $LIST\n", HOLE),
        ("LIST=A=1,B=2\nIFS=,\nfor each in $LIST; do export $each; done\n", HOLE),
        ("IFS=$'\\n\\t'\nLIST='A=1 B=2'\nexport $LIST\n", "1 B=2"),
        ("shopt -so allexport\nA=1\nshopt -uo allexport\nB=2\n", "1"),
        ("declare -ix A=1\nA+=2\n", HOLE),
        ("export A=1\nB=5 env -v vllm serve\nexit\n", "1"),
        ("export A=1\nenv -iu B PATH=$PATH vllm serve\nexit\n", None),
        ("export A=1\nenv -vu A vllm serve\nexit\n", None),
        ("export A=1\nenv -vC / vllm serve\nexit\n", "1"),
        *((f"export A=1 B=2\nsudo {words} vllm serve\nexit\n", value) for words, value in (
            ("-E", "1"), ("-EH", "1"), ("-nE", "1"), ("-Eu root", "1"), ("--user root -E", "1"),
            ("-n -u root", None), ("--preserve-env=A", "1"), ("--preserve-env=C,B", None),
        )),
    ],
)  # fmt: skip
def test_words_mean_what_they_mean_to_bash(script, value, tmp_path):
    assert check(tmp_path, script)["A"] == value


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ('export A="$(cd "$(dirname "$0")/.." && pwd)"\n', "@P@"),
        ('export A="$(cd "$(dirname "$0")/bin/" && pwd)"\n', "@R@/bin"),
        ("cd /usr/../tmp/\nexport A=$PWD/x\n", "/tmp/x"),
        ("cd @R@\ncd bin\nexport A=$PWD\n", "@R@/bin"),
        ("cd -P @R@/bin\nexport A=$PWD\n", HOLE),
        ("export A=$PWD\n", "@R@"),
        ("D=@R@/bin/\nexport A=$(dirname $D)\n", "@R@"),
        ("export A=$(realpath @R@/bin)\n", HOLE),
        ('export A="$(dirname "$(readlink -f "$0")")"\n', "@R@"),
        (". @R@/lib/own.sh\n", "@R@"),
        ("bash @R@/lib/child.sh\nexit\n", "@R@/lib"),
        ("bash -c 'export A=$0; vllm serve x' zero\nexit\n", HOLE),
    ],
)
def test_a_script_that_asks_where_it_is_gets_that_answer(script, value, tmp_path):
    files = {
        "lib/own.sh": 'export A="$(dirname "$0")" B="${BASH_SOURCE[0]%/*}"\n',
        "lib/child.sh": 'export A="${0%/*}"\nvllm serve x\n',
    }
    script, value = script.replace("@R@", str(tmp_path)), value.replace("@R@", str(tmp_path))
    assert check(tmp_path, script, files)["A"] == value.replace("@P@", str(tmp_path.parent))


def test_a_script_behind_a_link_finds_what_lies_beside_its_file(tmp_path):
    script = 'here="$(dirname "$(readlink -f "$0")")"\n. "$here/site.env"\nexport A B=$here\n'
    files = {"real/site.env": "A=real\n", "site.env": "A=beside the link\n"}
    told = check(tmp_path, script, files, {"serve.sh": "real/serve.sh"})
    assert told == {"A": "real", "B": f"{tmp_path}/real"}


@pytest.mark.parametrize(
    "command",
    [
        "cat > @R@/gen.env <<EOF\nexport A=2\nEOF",
        "echo 'export A=2' >> @R@/gen.env",
        "cd @R@; echo 'export A=2' > ./gen.env",
        "sed -i s/1/2/ @R@/gen.env",
        "cp @R@/other.env @R@/gen.env",
        "echo 'export A=2' | tee @R@/gen.env > /dev/null",
        "dd status=none if=@R@/other.env of=@R@/gen.env",
    ],
)
def test_a_file_that_the_script_writes_before_it_is_sourced_is_not_known(command, tmp_path):
    files = {"gen.env": "export A=1\n", "other.env": "export A=2\n"}
    assert check(tmp_path, f"{command}\n. @R@/gen.env\n", files)["A"] == HOLE


def test_a_file_that_is_only_read_before_it_is_sourced_is_known(tmp_path):
    script = "[ -f @R@/gen.env ] && cat @R@/gen.env > /dev/null\n. @R@/gen.env\n"
    assert check(tmp_path, script, {"gen.env": "export A=1\n"})["A"] == "1"


@pytest.mark.parametrize(
    "name",
    ["HOSTNAME", "UID", "EUID", "PPID", "RANDOM", "SECONDS", "LINENO", "OSTYPE", "SHLVL", "HOME",
     "PATH", "LANG", "SHELL", "TERM", "BASH_VERSION", "IFS", "OPTIND", "_", "INVOCATION_ID"],
)  # fmt: skip
def test_what_the_shell_or_systemd_gives_is_not_taken_for_empty(name, tmp_path):
    told = check(tmp_path, f"export A=x-${name} B=${{{name}:-default}}\n")
    assert (told["A"], told["B"]) == (f"x-{HOLE}", HOLE)


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("export A=1\nexec @R@/start one\n", "2one"),
        ("export A=1\nexec nice -n 1 @R@/start one\n", "2one"),
        ("export A=1\ncd bin\n../start\nexit\n", "2"),
        ("export A=1\nexec @R@/wrap vllm serve x\n", "2"),
        ("export A=1\nexec @R@/plain\n", "2"),
        ("export PATH=@R@/bin:$PATH A=1\nexec starter\n", "2"),
        ("export A=1\nexec @R@/program\n", "1"),
        ("export A=1\n./program\nexit\n", HOLE),
        ("export A=1\nexec dumb @R@/start\n", HOLE),
    ],
)
def test_a_program_of_the_site_is_followed_where_it_is_a_script_whatever_its_name(
    script, value, tmp_path
):
    body = "export A=2$1\nexec vllm serve x\n"
    files = {
        "start": f"#!/bin/bash\n{body}",
        "wrap": '#!/bin/sh\nexport A=2\nexec "$@"\n',
        "plain": body,
        "bin/starter": f"#!/usr/bin/env bash\n{body}",
        "bin/dumb": '#!/bin/bash\nexec "$@"\n',
        "program": "#!/usr/bin/env python3\nimport os\n"
        "open('@R@/seen', 'w').write('\\0'.join(f'{k}={v}' for k, v in os.environ.items()))\n",
    }
    assert check(tmp_path, script.replace("@R@", str(tmp_path)), files)["A"] == value


@pytest.mark.parametrize(
    ("script", "value"),
    [
        (". own.env\n", "path"),
        ("cd lib\n. own.env\n", "path"),
        (". ./own.env\n", "here"),
        (". here.env\n", "here"),
        ("export PATH=/usr/bin\nPATH=@R@/bin:$PATH; . own.env\n", "path"),
    ],
)
def test_a_name_without_a_slash_is_sourced_from_the_path_first(script, value, tmp_path):
    files = {"bin/own.env": "export A=path\n", "own.env": "export A=here\n",
             "here.env": "export A=here\n", "lib/own.env": "export A=lib\n"}  # fmt: skip
    lead = f"export PATH={tmp_path}/bin:$PATH\n"
    script = script.replace("@R@", str(tmp_path))
    assert check(tmp_path, lead + script, files)["A"] == value


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("setpriv --no-new-privs vllm serve x", "1"),
        ("flock lock vllm serve x", "1"),
        ("flock lock -c 'A=3 vllm serve x'", "3"),
        ("script -qec 'A=3 vllm serve x' /dev/null", "3"),
        ("timeout -s INT 9 env -u A vllm serve x", None),
        ("timeout -s INT 9 sudo vllm serve x", HOLE),
        ("timeout 9 nice -n 1 setsid -w stdbuf -oL vllm serve x", "1"),
        ("unshare -f vllm serve x", "1"),
        ("nohup env -S 'A=4' vllm serve x", HOLE),
    ],
)
def test_a_program_on_the_way_passes_on_what_it_passes_on(words, value, tmp_path):
    told = check(tmp_path, f"export A=1 LD_PRELOAD=\n{words}\nexit\n")
    assert told["A"] == value


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ("declare -x A=1\n", HOLE),
        ("export A=1\ndeclare +x A\n", HOLE),
        ("typeset -x A=1\n", HOLE),
        ("source ./x.env\n", HOLE),
        ("A=1\nalias ex=export; ex A=2\n", None),
        ("alias ex=export\nex A=2\n", "2"),
        ("export A=$'t\\x41'\n", HOLE),
        ("export A=1\ntime A=2\n", HOLE),
        ("export A=1\npushd / > /dev/null\nexport A=$PWD\n", HOLE),
    ],
)
@pytest.mark.parametrize("shell", ["/bin/dash", "/bin/bash --posix"])
def test_what_sh_may_lack_is_not_relied_upon(shell, script, value, tmp_path):
    host = Host(tmp_path)
    files = {"x.env": "export A=1\n"}
    host.lay_out(f"#!/bin/sh\n{script}exec vllm serve x\n", files, {})
    told = host.told(["A"])["A"]
    assert told == value
    (tmp_path / "serve.sh").write_text(f"#!{shell}\n{script}exec vllm serve x\n")
    assert told in (HOLE, host.given(["A"])["A"])


@pytest.mark.parametrize(
    ("script", "value"),
    [
        ('if [ -n "$X" ]; then export A; fi\nA=1\n', HOLE),
        ('[ -n "$X" ] && export A\nA=1\n', HOLE),
        ("trap 'A=2' USR1\nkill -USR1 $$\nexport B=$A\n", HOLE),
        ("export A=1\nA[1]=9\n", HOLE),
        ("A=(3)\nexport A=1\n", HOLE),
        ("set -- 1 'B=2 3'\nbuiltin export A=\"$@\"\n", HOLE),
        ("f() {\nshopt -s expand_aliases\nalias e='export A=1'\ne || true\n}\nf\n", HOLE),
        ("export B=1\nlocal B=2 2> /dev/null\n", "1"),
        ("A[1]=9\nf() { vllm serve x; }\nA=3 f\nexit\n", "3"),
        ("A=1\ntrap 'A=2' USR1\nkill -USR1 $$\nexport B=${A:-3}\n", HOLE),
    ],
)
def test_what_may_be_exported_or_changed_at_any_time_is_not_told(script, value, tmp_path):
    told = check(tmp_path, script)
    assert value in (told["A"], told["B"])


@pytest.mark.parametrize(
    "words",
    ["docker run img", "conda run -n x", "micromamba run -n x", "pipenv run", "systemd-run",
     "ssh host", "mpirun -x A", "accelerate launch", "su -", "runuser -l x --", "strace -E A=2",
     "nsenter -a -t 1", "uv run --env-file x.env", "with-contenv", "torchrun",
     "setpriv --reset-env"],
)  # fmt: skip
def test_what_a_program_on_the_way_may_set_is_not_told(words, tmp_path):
    """No machine has all of these programs, so nothing of them is run."""
    host = Host(tmp_path)
    given = "OMP_NUM_THREADS" if words == "torchrun" else "A"
    exported = "" if words.startswith(("docker", "torchrun")) else "export A=1\n"
    host.lay_out(f"#!/bin/bash\n{exported}{words} vllm serve x\n", {}, {})
    assert host.told([given])[given] == HOLE
