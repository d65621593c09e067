"""Scripts made at random from the shapes of serve scripts; every choice comes from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

FLAG, OTHER = "NOVA_A", "NOVA_B"
WANTED = (
    "0", "1", "7", "", "two words", "it's", 'say "hi"', "$HOME `id` \\", "a\nb", "-n", "~/x", "*",
    "#1", "a=b", "!x", "é\t", "{a,b}", "&&", None, None, None,
)  # fmt: skip


def sample(seed: int) -> tuple[Script, dict[str, str | None]]:
    """Return the script of a seed, and the edits to try on it."""
    rng = random.Random(seed)
    script = Grammar(rng).script()
    edits = {FLAG: rng.choice(WANTED)}
    if rng.random() < 0.2:
        edits[OTHER] = rng.choice(WANTED)
    return script, edits


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
            ["export \\", f"  {FLAG}={plain} \\", f"  {OTHER}=4"],
            [f'export {FLAG}="one', f'export {FLAG}=9 two"'],
            self.sourced(),
            [f"export $(grep -v '^#' {self.file(f'{FLAG}={plain}')} | xargs)"],
            ["trap 'echo bye >/dev/null' EXIT"],
            self.library(plain),
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

    def library(self, plain: str) -> list[str]:
        """Source a file of functions from the script's own folder, and call one."""
        inside = self.pick(
            f"export {FLAG}={plain}", f"local -x {FLAG}={plain}", f"unset {FLAG}", ":"
        )
        name = self.file(f"lib_fn() {{ {inside}; }}").removeprefix("./")
        where = self.pick('"$(dirname "$0")"', "${0%/*}", '"$(cd "$(dirname "$0")" && pwd)"')
        return [f"source {where}/{name}", self.pick("lib_fn", "lib_fn || true", ":")]

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
            ["# don't \\"],
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
        name = f"set{len(self.functions)}"
        self.functions.append(name)
        call = self.pick(name, f"{name} x", f"{name} && true", f"if ! {name}; then :; fi", ":")
        role = self.pick("a", "b")
        return self.rng.choice([
            [f'if [ "${{1:-}}" = {role} ]; then', *inner, "fi"],
            [f"if [[ ${{1:-}} == {role} ]]; then", *inner, "else", *other, "fi"],
            ['case "${1:-}" in', "a)", *inner, "  ;;", f"{role})", *other, "  ;;", "esac"],
            [f"for q in {self.pick('1', '1 2')}; do", *inner, "done"],
            ["while :; do", *inner, "  break", "done"],
            ["{", *inner, "}"],
            [f"{name}() {{", *inner, "}", call],
            ["(", *inner, ")"],
            ["if false; then", *inner, "elif true; then", *other, "fi"],
        ])  # fmt: skip

    def posix_script(self) -> Script:
        """Make one for dash: fewer shapes, other rules."""
        plain = self.pick("1", "2", "on")
        writes = [
            [f"export {FLAG}={plain}"], [f"{FLAG}={plain}", f"export {FLAG}"], [f"unset {FLAG}"],
            [f"{FLAG}={plain} true"], [f"{FLAG}={plain} :"], [f"{FLAG}={plain} export {OTHER}=2"],
            [f'export {FLAG}="${{{FLAG}:-{plain}}}"'],
            [f": ${{{FLAG}:={plain}}}", f"export {FLAG}"],
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
            [f"env {FLAG}={plain} {s}"], [f"g() {{ {s}; }}", f"{FLAG}={plain} g"],
            [f"{s} &", "wait"],
            [f"g() {{ local {FLAG}={plain}; export {FLAG}; {s}; }}", "g"], [f"true && {s}"],
            [f"if {s}; then :; fi"], [f"( {s} )"], [f"sh -c '{FLAG}={plain} {s}'"],
            [f"set -- {s}", 'exec "$@"'],
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
