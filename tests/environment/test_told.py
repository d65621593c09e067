"""What fleetctl says of a flag is what bash gives the server, or it says that it can't tell."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from fleetctl.environment.explain import explain
from fleetctl.environment.files import Link
from fleetctl.environment.shell.parser import system_parser
from fleetctl.environment.sources import Sources, wanted_files

PARSER = system_parser()
UNIT = "dsv4.service"
HOLE = "\0"
SUDO = """#!/bin/bash
kept=() all=
while [[ $1 == -* ]]; do
  case $1 in
    --preserve-env=*) IFS=, read -ra kept <<< "${1#*=}" ;;
    -u|--user) shift ;;
    -Eu) all=1; shift ;;
    --preserve-env|-*E*) all=1 ;;
  esac
  shift
done
[ "$all" ] && exec "$@"
given=("PATH=$PATH")
for name in "${kept[@]}"; do [ "${!name+x}" ] && given+=("$name=${!name}"); done
exec env -i "${given[@]}" "$@"
"""


@dataclass(frozen=True)
class Host:
    """A service's files below a directory, and the bash that runs its script."""

    root: Path

    def lay_out(self, script: str, files: dict[str, str], links: dict[str, str]) -> None:
        server = f"#!/bin/sh\nexec cat /proc/self/environ > {self.root}/seen\n"
        texts = {"bin/vllm": server, "bin/sudo": SUDO, "serve.sh": script, **files}
        for name, text in texts.items():
            path = self.root / ("real/serve.sh" if name in links else name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace("@R@", str(self.root)), newline="")
            path.chmod(0o755)
        for name, target in links.items():
            (self.root / name).symlink_to(target)

    def told(self, names: str) -> dict[str, str | None]:
        unit = f"[Service]\nWorkingDirectory={self.root}\nExecStart={self.root}/serve.sh\n"
        sources = Sources(UNIT, {f"/etc/systemd/system/{UNIT}": unit.encode()})
        while wanted := [p for p in wanted_files(sources, PARSER) if os.path.lexists(p)]:
            links = {p: Link(str(Path(p).readlink())) for p in wanted if Path(p).is_symlink()}
            found = {str(Path(p).resolve()): Path(p).read_bytes() for p in wanted}
            sources = replace(sources, files={**sources.files, **links, **found})
        return {origin.name: origin.value for origin in explain(sources, PARSER, names)}

    def given(self, names: str) -> dict[str, str | None]:
        """Run the script as systemd does: with a path, a language and an invocation."""
        path = f"{self.root}/bin:/usr/local/bin:/usr/bin:/bin"
        environment = {"PATH": path, "LANG": "C.UTF-8", "INVOCATION_ID": "1"}
        subprocess.run([f"{self.root}/serve.sh"], env=environment, cwd=self.root, check=True)
        seen = (self.root / "seen").read_bytes().decode().split("\0")
        values = dict(item.split("=", 1) for item in seen if "=" in item)
        return {name: values.get(name) for name in names}


def check(root: Path, script: str, files=None, links=None, *, names: str = "AB") -> dict:
    """Return what is told, after bash has agreed."""
    host = Host(root)
    host.lay_out(f"#!/bin/bash\n{script}exec vllm serve x\n", files or {}, links or {})
    told = host.told(names)
    for name, value in host.given(names).items():
        said = told[name]
        if said is not None and HOLE in said:
            pattern = ".*".join(re.escape(piece) for piece in said.split(HOLE))
            fits = said == HOLE or re.fullmatch(pattern, value or "", re.DOTALL) is not None
        else:
            fits = said == value
        assert fits, f"{name}: told {said!r}, bash gives {value!r}"
    return told


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
