"""Fuzz the script rewriter: scripts from a grammar, bash with stub servers as the oracle.

    python benchmarks/rewriter_fuzz.py --minutes 10 --seed 1

Each script is made of the shapes that real serve scripts have (tests/cases/serve_scripts). It is
run before and after the edit, in several ways (arguments, inherited values): every server must
see the wanted value, everything else must be as before, and a second edit must change nothing.
Prints scripts tried, refused (by code), without a server, and failed; failures are kept whole.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import random
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ORACLE = Path(__file__).parents[1] / "tests" / "environment" / "oracle.py"
FLAG, OTHER = "NOVA_A", "NOVA_B"
WANTED = (
    "0", "1", "7", "", "two words", "it's", 'say "hi"', "$HOME `id` \\", "a\nb", "-n", "~/x", "*",
    "#1", "a=b", "!x", "é\t", "{a,b}", "&&", None, None, None,
)  # fmt: skip


def load_oracle():
    """Import what runs a script before and after an edit; the tests use the same."""
    spec = importlib.util.spec_from_file_location("oracle", ORACLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["oracle"] = module
    spec.loader.exec_module(module)
    return module


@dataclass
class Script:
    """A script and the files beside it."""

    text: str
    files: dict[str, str]


@dataclass
class Grammar:
    """Makes one script; every choice comes from the seed."""

    rng: random.Random
    functions: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    launches: int = 0
    readonly: bool = False
    reads: bool = False
    strict: bool = False

    def pick(self, *options: str) -> str:
        return self.rng.choice(options)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def value(self) -> str:
        return self.pick("1", "2", "0", "'a b'", '"x y"', "on", "$'t\\tb'", "~", '"$HOME"', "''")

    # ---- writes of the flag

    def write(self) -> list[str]:
        v = self.value()
        plain = self.pick("1", "2", "0", "on")
        options = [
            [f"export {FLAG}={v}"],
            [f"export {FLAG}={v}  # note {FLAG}=9"],
            [f"export {OTHER}=5 {FLAG}={v}"],
            [f"export {FLAG}={v} {OTHER}=5"],
            [f'export "{FLAG}={plain}"'],
            [f"{FLAG}={v}", f"export {FLAG}"],
            [f"export {FLAG}", f"{FLAG}={v}"],
            [f"{FLAG}={v}"],
            [f"declare -x {FLAG}={v}"],
            [f"typeset -x {FLAG}={v}"],
            [f'export {FLAG}="${{{FLAG}:-{plain}}}"'],
            [f"export {FLAG}=${{{FLAG}:-${{{OTHER}:-{plain}}}}}"],
            [f': "${{{FLAG}:={plain}}}"', f"export {FLAG}"],
            [f"export {FLAG}=$(echo {plain})"],
            [f"export {FLAG}=`echo {plain}`"],
            [f"export {FLAG}=$(printf %s \\", f"  {plain})"],
            [f"read -r {FLAG} <<< {plain}", f"export {FLAG}"],
            [f"printf -v {FLAG} %s {plain}"],
            [f"for {FLAG} in 3 4; do :; done"],
            [f'eval "export {FLAG}={plain}"'],
            [f"eval 'export {FLAG}='{plain}"],
            [f"unset {FLAG}"],
            [f'for n in {OTHER} {FLAG}; do unset "$n"; done'],
            [f"export -n {FLAG}"],
            [f"{FLAG}+={plain}"],
            [f'for kv in {OTHER}=2 {FLAG}={plain}; do export "$kv"; done'],
            [
                f"declare -A M=([{FLAG}]={plain} [{OTHER}]=3)",
                'for k in "${!M[@]}"; do export "$k=${M[$k]}"; done',
            ],
            ["set -a", f"{FLAG}={v}", "set +a"],
            ["set -o allexport", f"{FLAG}={v}", "set +o allexport"],
            [f"(export {FLAG}={plain}; true)"],
            [f"export {FLAG}={plain} | cat"],
            [f"x=$(export {FLAG}={plain}; echo $?)"],
            [f"{FLAG}={plain} true"],
            [f"{FLAG}={plain} ./preflight"],
            [f"command export {FLAG}={plain}"],
            [f"\\export {FLAG}={plain}"],
            [f"builtin export {FLAG}={plain}"],
            [f"export {FLAG}={plain} && echo ok >/dev/null"],
            [f"[ -d / ] && export {FLAG}={plain}"],
            [f"[[ -d /nonexistent ]] || export {FLAG}={plain}"],
            [f"true && {FLAG}={plain} && export {FLAG}"],
            [f"export \\", f"  {FLAG}={plain} \\", f"  {OTHER}=4"],
            [f'export {FLAG}="one', f'export {FLAG}=9 two"'],
            self.sourced(),
            [f"export $(grep -v '^#' {self.file(f'{FLAG}={plain}')} | xargs)"],
            [f"trap 'echo bye >/dev/null' EXIT"],
        ]
        if not self.readonly and self.chance(0.05):
            self.readonly = True
            options.append([f"readonly {FLAG}={plain}", f"export {FLAG}"])
            options.append([f"declare -rx {FLAG}={plain}"])
        if self.chance(0.03):
            options += [
                [f"declare -ix {FLAG}=4"],
                [f"declare -lx {FLAG}=on"],
                [f"{FLAG}=(a b)"],
                [f"declare -n ref={FLAG}", "ref=3"],
            ]
        return self.rng.choice(options)

    def file(self, text: str) -> str:
        name = f"f{len(self.files)}.env"
        self.files[name] = text + "\n"
        return f"./{name}"

    def sourced(self) -> list[str]:
        text = self.pick(f"export {FLAG}=3", f"{FLAG}=3", f"{OTHER}=6", f"unset {FLAG}")
        name = self.file(text)
        return [self.pick(f"source {name}", f". {name}", f"set -a; . {name}; set +a")]

    # ---- what is not code

    def noise(self) -> list[str]:
        return self.rng.choice([
            [f"# export {FLAG}=1"],
            [""],
            [f"echo export {FLAG}=1 >/dev/null"],
            [f'echo "export {FLAG}=1" >> "$HOME/.profile"'],
            ["cat > /dev/null <<'EOF'", f"export {FLAG}=5", "vllm serve x", "EOF"],
            ["cat <<EOF >/dev/null", f"export {FLAG}=5 $((1+1)) `echo x`", "EOF"],
            [": <<'OFF'", f"export {FLAG}=1", "OFF"],
            ["pkill -f 'vllm serve' || true"],
            ["ulimit -c 0"],
            ["cd ."],
            ["ARR=(a b); echo ${#ARR[@]} ${ARR[0]#a} $# >/dev/null #c"],
            [f"# don't \\"],
            ["if ! command -v vllm >/dev/null; then exit 1; fi"],
            [f"set {FLAG}=1"],
        ])  # fmt: skip

    # ---- launches

    def server(self) -> str:
        self.launches += 1
        program = self.pick("python3 -m sglang.launch_server", "vllm serve nova")
        tail = self.pick("", " --tp 8", f" --worker-env {OTHER}=1", " \\\n  --tp 8 \\\n  --port 1")
        return f"{program} --id {self.launches}{tail}"

    def launch(self) -> list[str]:
        s = self.server()
        plain = self.pick("1", "2", "'a b'")
        return self.rng.choice([
            [s], [s], [s],
            [f"{FLAG}={plain} {s}"],
            [f"{FLAG}={plain} {FLAG}=3 {s}"],
            [f"{OTHER}=1 \\", f"{FLAG}={plain} \\", s],
            [f"{OTHER}=1 {FLAG}={plain} {s}"],
            [f"{OTHER}='x y' \\", f"  {s}"],
            [f"env {FLAG}={plain} {OTHER}=2 {s}"],
            [f"env {OTHER}=2 {s}"],
            [f"env -u {FLAG} {s}"],
            [f'env -i PATH="$PATH" HOME="$HOME" {s}'],
            [f'env -i PATH="$PATH" HOME="$HOME" {FLAG}={plain} {s}'],
            [f"nice -n 0 numactl --interleave=all env {FLAG}={plain} {s}"],
            [f"nohup {s} >/dev/null 2>&1"],
            [f"time {s}"],
            [f"{s} || echo failed"],
            [f"{s} | cat"],
            [f"! {s}"],
            [f"( {s} )"],
            [f"( export {FLAG}={plain}; {s} )"],
            ["{", f"  export {FLAG}={plain}", f"  {s}", "} >/dev/null"],
            [f"cd . && {s}"],
            [f"true && export {FLAG}={plain} && {s}"],
            [f"export {OTHER}=1; {s}; echo done >/dev/null"],
            [f"{s} &", "wait"],
            [f"if {s}; then :; fi"],
            ["if false; then :", f"elif {s}; then", "  :", "fi"],
            [f"until {s}; do sleep 1; done"],
            [f"for i in 1 2; do {s}; done"],
            ["for i in 1 2; do", f"  {s}", f"  export {FLAG}={plain}", "done"],
            ["n=0", "while [ $n -lt 2 ]; do", "  n=$((n+1))", f"  {s}", "done"],
            [f"CMD=({s})", '"${CMD[@]}"'],
            [f'CMD="{s.split(chr(92))[0]}"', "$CMD"],
            [f'CMD="{s.split(chr(92))[0]}"', 'CMD="$CMD --x"', 'eval "$CMD"'],
            [f"bash -c '{s}'"],
            [f"bash -c '{FLAG}={self.pick('1', '2')} {s}'"],
            [f"bash -c 'export {FLAG}=4; exec {s}'"],
            ["bash <<'EOS'", s, "EOS"],
            [f"sh -c 'exec {s}'"],
            [f"timeout 5 {s}"],
            ["case ${1:-a} in", f"  b) export {FLAG}={plain} ;&", f"  *) {s} ;;", "esac"],
            self.function(s, plain),
            self.runner(s, plain),
            [f"docker run --rm -e {FLAG}={plain} -v /m:/m img {s}"],
            ["docker run --rm \\", f"  -e {OTHER}=1 \\", f"  img {s}"],
            [f"docker run -e {FLAG} img {s}"],
            [f"sudo {s}"],
            [f"sudo {FLAG}={plain} {s}"],
            [f"ssh host '{s}'"],
            [f"srun --ntasks=1 {s}"],
            [f"uv run {s}"],
            [f"coproc {{ {s}; }}", "wait"],
        ])  # fmt: skip

    def function(self, server: str, plain: str) -> list[str]:
        name = f"fn{len(self.functions)}"
        self.functions.append(name)
        inside = self.pick("", f"  export {FLAG}={plain}", f"  local -x {FLAG}={plain}",
                           f"  local {FLAG}={plain}", "  echo x >/dev/null")  # fmt: skip
        body = [line for line in (inside, f"  {server}") if line]
        opening = self.pick(f"{name}() {{", f"function {name} {{", f"{name} ()", f"{name}() (")
        closing = ")" if opening.endswith("(") else "}"
        head = [opening] if opening[-1] in "{(" else [opening, "{"]
        call = self.pick(name, f"{name} a", f"if ! {name}; then :; fi", f"{FLAG}=3 {name}",
                         f"{name} || true", f'"{name[:2]}${{x:-{name[2:]}}}"', f"{name} &\nwait",
                         f"{name}; {name}")  # fmt: skip
        return [*head, *body, closing, call]

    def runner(self, server: str, plain: str) -> list[str]:
        name = f"run{len(self.functions)}"
        self.functions.append(name)
        inside = self.pick(
            '"$@"', f'{FLAG}={plain} "$@"', '"$@" || return 1', 'nohup "$@" >/dev/null'
        )
        return [f"{name}() {{", f"  {inside}", "}", f"{name} {server}"]

    # ---- structure

    def block(self, depth: int) -> list[str]:
        lines: list[str] = []
        for _ in range(self.rng.randint(1, 3)):
            lines += self.statement(depth)
        return lines

    def statement(self, depth: int) -> list[str]:
        roll = self.rng.random()
        if depth <= 0 or roll < 0.45:
            return self.write()
        if roll < 0.6:
            return self.noise()
        return self.compound(depth - 1)

    def compound(self, depth: int) -> list[str]:
        inner = indented(self.block(depth))
        other = indented(self.block(depth))
        kind = self.rng.randrange(9)
        if kind == 0:
            return [f'if [ "${{1:-}}" = {self.pick("a", "b")} ]; then', *inner, "fi"]
        if kind == 1:
            return [
                f"if [[ ${{1:-}} == {self.pick('a', 'b')} ]]; then",
                *inner,
                "else",
                *other,
                "fi",
            ]
        if kind == 2:
            return ['case "${1:-}" in', "a)", *inner, "  ;;", f"{self.pick('b', '*')})", *other,
                    "  ;;", "esac"]  # fmt: skip
        if kind == 3:
            return [f"for q in {self.pick('1', '1 2')}; do", *inner, "done"]
        if kind == 4:
            return ["while :; do", *inner, "  break", "done"]
        if kind == 5:
            return ["{", *inner, "}"]
        if kind == 6:
            name = f"set{len(self.functions)}"
            self.functions.append(name)
            call = self.pick(name, f"{name} x", f"{name} && true", f"if ! {name}; then :; fi", ":")
            return [f"{name}() {{", *inner, "}", call]
        if kind == 7:
            return ["(", *inner, ")"]
        return ["if false; then", *inner, "elif true; then", *other, "fi"]

    def posix_script(self) -> Script:
        """Make one for dash: fewer shapes, other rules."""
        plain = self.pick("1", "2", "on")
        writes = [
            [f"export {FLAG}={plain}"], [f"{FLAG}={plain}", f"export {FLAG}"], [f"unset {FLAG}"],
            [f"{FLAG}={plain} true"], [f"{FLAG}={plain} :"], [f"{FLAG}={plain} export {OTHER}=2"],
            [f'export {FLAG}="${{{FLAG}:-{plain}}}"'], [f": ${{{FLAG}:={plain}}}", f"export {FLAG}"],
            [f"X='a b'; export {FLAG}=$X"], [f"read -r {FLAG} <<EOT", plain, "EOT"],
            [f"[ -d / ] && export {FLAG}={plain}"], [f"(export {FLAG}={plain})"],
            [f"set -a; {FLAG}={plain}; set +a"], [f"eval 'export {FLAG}={plain}'"],
            [f"if [ \"${{1:-}}\" = a ]; then export {FLAG}={plain}; fi"],
            [f"f() {{ export {FLAG}={plain}; }}", "f"], [f"f() {{ local {FLAG}=3; }}", "f"],
            [f"for {FLAG} in 3 4; do :; done"], [f"{FLAG}={plain} . {self.file('X=1')}"],
            [f"{FLAG}={plain} eval 'export {OTHER}=1'"], [f"readonly {OTHER}=1"],
        ]  # fmt: skip
        s = self.server()
        launches = [
            [s], [f"exec {s}"], [f"{FLAG}={plain} {s}"], [f"{FLAG}={plain} exec {s}"],
            [f"env {FLAG}={plain} {s}"], [f"g() {{ {s}; }}", f"{FLAG}={plain} g"], [f"{s} &", "wait"],
            [f"g() {{ local {FLAG}={plain}; export {FLAG}; {s}; }}", "g"], [f"true && {s}"],
            [f"if {s}; then :; fi"], [f"( {s} )"], [f"sh -c '{FLAG}={plain} {s}'"], [f"set -- {s}", 'exec "$@"'],
        ]  # fmt: skip
        lines = ["#!/bin/sh", self.pick("set -e", "set -eu", "")]
        for _ in range(self.rng.randint(0, 4)):
            lines += self.rng.choice(writes)
        return Script("\n".join([*lines, *self.rng.choice(launches)]) + "\n", self.files)

    def script(self) -> Script:
        """Make one."""
        if self.chance(0.15):
            return self.posix_script()
        lines = [self.pick("#!/usr/bin/env bash", "#!/bin/bash", "#!/bin/bash -e", "")]
        lines.append(self.pick("", "set -e", "set -x", "set -o pipefail"))
        for _ in range(self.rng.randint(0, 4)):
            lines += self.statement(2)
        for _ in range(self.rng.choice([1, 1, 1, 2])):
            lines += self.branch(self.launch())
            if self.chance(0.3):
                lines += self.statement(1)
        if self.chance(0.4):
            lines.append(f"exec {self.server()}")
            if self.chance(0.2):
                lines += self.write()
        text = "\n".join(line for number, line in enumerate(lines) if line or number)
        return Script(text + self.pick("\n", "\n", "", " \\\n"), self.files)

    def branch(self, launch: list[str]) -> list[str]:
        if any("<<" in line for line in launch) or self.chance(0.7):
            return launch
        return ['if [ "${1:-}" = a ]; then', *indented(launch), "else",
                *indented(self.launch()), "fi"]  # fmt: skip


def indented(lines: list[str]) -> list[str]:
    """Indent, except where a here-document's end would no longer be one."""
    text = "\n".join(lines)
    if "<<" in text or '"one' in text:
        return lines
    return [f"  {line}" for line in lines]


def main() -> int:
    """Fuzz for a while and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=0, help="stop after so many scripts")
    parser.add_argument("--keep", type=Path, help="folder for the scripts that failed")
    parser.add_argument("--most", type=int, default=20, help="stop after so many failures")
    options = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    deadline = time.monotonic() + options.minutes * 60
    seed = options.seed
    with tempfile.TemporaryDirectory(prefix="fuzz.") as folder:
        oracle = load_oracle().Oracle(Path(folder))
        while time.monotonic() < deadline and (
            not options.count or sum(counts.values()) < options.count
        ):
            rng = random.Random(seed)
            script = Grammar(rng).script()
            edits = {FLAG: rng.choice(WANTED)}
            if rng.random() < 0.2:
                edits[OTHER] = rng.choice(WANTED)
            outcome = oracle.try_edit(script.text, edits, script.files)
            counts[outcome.status] += 1
            if outcome.problems:
                counts["failed"] += outcome.status != "failed"
                report(seed, script, edits, outcome, options.keep)
                if counts["failed"] >= options.most:
                    break
            seed += 1
    print(f"scripts tried {seed - options.seed} (seeds {options.seed} to {seed - 1})")
    for status, count in sorted(counts.items()):
        print(f"  {status}: {count}")
    print(f"failures: {counts['failed']}")
    return 1 if counts["failed"] else 0


def report(seed: int, script: Script, edits: dict, outcome, keep: Path | None) -> None:
    """Show a failure; keep its script where a folder is given."""
    print(f"---- seed {seed} {edits} {outcome.status}")
    for problem in outcome.problems[:4]:
        print("  ", problem[:300])
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{seed}.sh").write_text(script.text)


if __name__ == "__main__":
    sys.exit(main())
