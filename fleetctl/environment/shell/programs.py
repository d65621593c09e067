"""Programs that start other programs, and what each lets through of the environment."""

from __future__ import annotations

import re
from dataclasses import replace

from fleetctl.environment.shell.command_line import ASSIGNMENT, Attached, Payload, Reader, Step
from fleetctl.environment.shell.dataflow import HOLE, Means
from fleetctl.environment.shell.servers import is_server, is_server_image
from fleetctl.environment.shell.wrappers import (
    PRELOADING,
    TORCHRUN,
    VENV,
    blocking_options,
    running_string,
    setting,
    uv,
)

SHELLS = frozenset({"bash", "sh", "dash"})

DATA = frozenset(
    {"echo", "printf", "pkill", "pgrep", "grep", "egrep", "fgrep", "rg", "kill", "killall", "cat"}
    | {"tee", "logger", "which", "type", "whereis", "hash", "test", "[", "[[", "ls", "sed", "awk"}
    | {"ps", "alias", "trap", "pip", "pip3", "apt", "apt-get", "dnf", "yum", "brew", "curl", "wget"}
    | {"git", "rm", "cp", "mv", "mkdir", "touch", "file", "head", "tail", "systemctl", "journalctl"}
    | {"notify-send", "mail", "jq", "tr", "cut", "sort", "uniq", "wc", "find", "ln", "chmod"}
    | {"chown", "tar", "du", "df", "stat", "readlink", "realpath", "dirname", "basename", "date"}
    | {"sleep", "wait", "true", "false", ":", "help", "man", "fuser", "lsof", "ss", "nc", "export"}
    | {"declare", "typeset", "local", "readonly", "unset", "read", "set", "shift", "return", "exit"}
)
"""Programs whose arguments are data: a server's name among them starts nothing."""

TRANSPARENT = frozenset(
    {"nohup", "command", "builtin", "setsid", "time", "nice", "ionice", "chrt", "taskset"}
    | {"timeout", "numactl", "xargs", "unbuffer", "prlimit", "perf", "gdb", "tini", "dumb-init"}
    | {"catatonit", "chroot", "unshare", "setarch", "linux64", "systemd-inhibit", "gosu", "su-exec"}
    | {"setuidgid", "s6-setuidgid", "softlimit", "cgexec", "choom", "cpulimit", "eatmydata"}
)
"""Programs that hand the whole environment on; their options are skipped."""

OPTION = re.compile(r"-|\d[\d.,smhd:-]*$|0x[0-9a-fA-F]+$")


def _env(reader: Reader, position: int) -> int:
    position = _env_options(reader, position + 1)
    reader.argument_places = ()
    while position < len(reader.fields):
        if not reader.loose:
            reader.insert_before(position)
        if reader.fields[position].rest or _may_assign(reader, position):
            reader.note_loose()
        elif not reader.attach(position, Means.ENV_ARGUMENT):
            break
        position += 1
    reader.cross()
    return position


def _may_assign(reader: Reader, position: int) -> bool:
    """Say whether a word that can't be told may be NAME=value: `$(cat x.env)`, `"$name=1"`.

    One before an option, `serve` or a file of Python is the program: `env A=1 "$PY" -m …`.
    """
    name, equals, _ = reader.at(position).partition("=")
    if equals:
        return HOLE in name
    return name.strip(HOLE) == "" and name != "" and not reader.runs(position)


def _env_options(reader: Reader, position: int) -> int:
    while (text := reader.at(position)).startswith("-"):
        position += 1
        if text in ("-", "--ignore-environment"):
            reader.note_cleared()
        elif text == "--":
            break
        elif text.startswith("--unset="):
            reader.removed.add(text.removeprefix("--unset="))
        elif text.startswith("--split-string"):
            reader.block("env -S splits a string itself")
        elif text == "--unset":
            reader.removed.add(reader.at(position))
            position += 1
        elif text == "--chdir":
            position += 1
        elif not text.startswith("--"):
            position = _env_letters(reader, text, position)
    return position


def _env_letters(reader: Reader, text: str, position: int) -> int:
    """Read `-iu NAME` and the like: -u and -C take the rest of the word, or the next one."""
    letters, argument_of, rest = _letters(text, "uCS")
    given = rest or reader.at(position)
    if "i" in letters:
        reader.note_cleared()
    if argument_of == "u":
        reader.removed.add(given)
    elif argument_of == "S":
        reader.block("env -S splits a string itself")
    return position + (argument_of != "" and not rest)


def _letters(text: str, with_argument: str) -> tuple[str, str, str]:
    """Return the letters of a word of short options, the one that takes an argument, the rest."""
    found = re.match(rf"-([^{with_argument}]*)([{with_argument}]?)(.*)", text, re.DOTALL)
    return (found[1], found[2], found[3]) if found else ("", "", "")


def _exec(reader: Reader, position: int) -> int:
    reader.executed = True
    position += 1
    while option := reader.option(position):
        position += 1
        if "a" in option:
            position += 1
        if "c" in option:
            reader.block("exec -c starts it with an empty environment", crossable=True)
    return position


def _sudo(reader: Reader, position: int) -> int:
    keeps = False
    kept: list[str] = []
    position += 1
    while option := reader.option(position):
        position += 1
        if option == "--":
            break
        if option.startswith("--preserve-env="):
            kept += option.partition("=")[2].split(",")
        elif option.startswith("--"):
            keeps = keeps or option == "--preserve-env"
            position += option in _SUDO_LONG
        else:
            letters, argument_of, rest = _letters(option, "ughpCTDRUrta")
            keeps = keeps or "E" in letters
            position += argument_of != "" and not rest
    if not keeps:
        reader.block("sudo starts it with an environment of its own", crossable=True)
        reader.kept.update(kept)
    while position < len(reader.fields) and reader.attach(position, Means.ENV_ARGUMENT):
        position += 1
    return position


_SUDO_LONG = frozenset(
    {"--user", "--group", "--host", "--prompt", "--chdir", "--chroot", "--close-from", "--role"}
    | {"--type", "--command-timeout", "--other-user", "--auth-type", "--login-class"}
)


def _srun(reader: Reader, position: int) -> int:
    position += 1
    while option := reader.option(position):
        position += 1
        name, equals, value = option.partition("=")
        if name == "--export":
            _srun_export(reader, position - (equals != ""), value or reader.at(position))
            position += not equals
    return position


def _srun_export(reader: Reader, position: int, chosen: str) -> None:
    """Read a list such as ALL,A=1 or B,C=2: names with a value are set, ALL lets the rest in."""
    listed = chosen.split(",")
    if listed[0] != "ALL":
        shown = chosen.replace(HOLE, "…")
        reader.block(f"srun --export={shown} chooses what arrives", crossable=True)
        reader.kept.update(item for item in listed if "=" not in item)
    for item in listed:
        found = ASSIGNMENT.fullmatch(item)
        if found is not None:
            place = replace(reader.fields[position], alone=False)
            reader.attached.append(Attached(found[1], found[2], place, Means.ENV_ARGUMENT))


_DOCKER_ALONE = re.compile(
    r"-[ditqP]+|--(detach|interactive|tty|rm|init|privileged|read-only|no-healthcheck|"
    r"oom-kill-disable|publish-all|quiet|replace|disable-content-trust|sig-proxy|help)"
)


_DOCKER_GLUED = re.compile(r"-[acehlmpuvw].+")  # -p8000:8000


def _docker(reader: Reader, position: int) -> int:
    position += 1
    if reader.at(position) == "container":
        position += 1
    if reader.at(position) not in ("run", "create", "exec"):
        return position
    running = reader.at(position) != "exec"
    reader.imaged = True
    reader.note_cleared()
    reader.cross()
    reader.container = running
    position += 1
    while position < len(reader.fields):
        reader.insert_before(position, "-e %s")
        if reader.several(position):
            reader.note_loose()
            position += 1
        elif reader.option(position):
            position = _docker_option(reader, position)
        else:
            break
    image = reader.at(position)
    if running and is_server_image(image) and not _has_server(reader, position):
        reader.payload = Payload.SERVER
    return position + 1


def _docker_option(reader: Reader, position: int) -> int:
    text = reader.at(position)
    if text in ("-e", "--env"):
        if not reader.attach(position + 1, Means.CONTAINER_OPTION, option=position):
            _copy_from_host(reader, position)
        return position + 2
    if text.startswith("--env="):
        reader.attach(position, Means.CONTAINER_OPTION, lead="--env=")
        return position + 1
    if text.startswith("-e") and "=" in text:
        reader.attach(position, Means.CONTAINER_OPTION, lead="-e")
        return position + 1
    if text == "--env-file" or text.startswith("--env-file="):
        reader.filed = True
    if "=" in text or _DOCKER_ALONE.fullmatch(text) or _DOCKER_GLUED.fullmatch(text):
        return position + 1
    return position + 2


def _copy_from_host(reader: Reader, position: int) -> None:
    name = reader.at(position + 1)
    if HOLE in name:
        reader.note_loose()
    elif position + 1 < len(reader.fields):
        item = reader.fields[position + 1]
        reader.attached.append(
            Attached(name, None, item, Means.CONTAINER_OPTION, reader.fields[position])
        )


def _has_server(reader: Reader, position: int) -> bool:
    rest = range(position + 1, len(reader.fields))
    return any(is_server(reader.fields, i) or reader.at(i) in SHELLS for i in rest)


def _shell(reader: Reader, position: int) -> int:
    position = _shell_options(reader, position + 1)
    letters = reader.shell_options or ""
    if "c" in letters:
        if position < len(reader.fields):
            reader.payload = Payload.SHELL
            reader.text = reader.fields[position]
            reader.operands = tuple(f.text for f in reader.fields[position + 2 :])
        return position + 1
    if "s" in letters or position >= len(reader.fields):  # the script comes from the input
        reader.payload = Payload.SHELL
        reader.operands = tuple(f.text for f in reader.fields[position:])
    elif not is_server(reader.fields, position):
        reader.run_script(position)
    return position


def _shell_options(reader: Reader, position: int) -> int:
    """Note the letters of a shell's options; return where its operands begin."""
    letters = ""
    while option := reader.option(position):
        position += 1
        if option in ("-O", "+O", "--rcfile", "--init-file") or re.fullmatch(r"-[a-z]*o", option):
            letters += "a" if reader.at(position) == "allexport" else ""
            position += 1
        letters += "l" if option == "--login" else "" if option.startswith("--") else option[1:]
        if option == "--":
            break
    reader.shell_options = letters
    return position


def _elsewhere(why: str) -> Step:
    def step(reader: Reader, position: int) -> int:
        reader.block(why)
        return position + 1

    return step


def _singularity(reader: Reader, position: int) -> int:
    end = position + 1
    while end < len(reader.fields) and not is_server(reader.fields, end):
        text = reader.at(end)
        if text in (
            "-e",
            "--cleanenv",
            "-c",
            "--contain",
            "-C",
            "--containall",
            "--env",
            "--env-file",
        ):
            reader.block(f"{reader.at(position)} {text} chooses what arrives")
        elif text.startswith("--env"):
            reader.barrier = f"{reader.at(position)} {text.partition('=')[0]} chooses what arrives"
        end += 1
    return end


_OTHER_MACHINE = _elsewhere("the command runs on another machine")
_OTHER_SESSION = _elsewhere("the command runs in a session with an environment of its own")
_MANAGER = _elsewhere("a manager starts it with an environment of its own")
_PIPENV = _elsewhere("it reads a file of variables, or runs the scripts of an environment")
_INJECTOR = _elsewhere("it sets variables of its own before it starts the command")

PROGRAMS: dict[str, Step] = {
    "env": _env,
    "exec": _exec,
    "sudo": _sudo,
    "doas": _sudo,
    "srun": _srun,
    "docker": _docker,
    "podman": _docker,
    "nerdctl": _docker,
    "setpriv": blocking_options("setpriv", "--reset-env"),
    "nsenter": blocking_options("nsenter", "--env", "-e", "--all", "-a"),
    "strace": blocking_options("strace", "-E", "--env"),
    "flock": running_string(behind=1),
    "script": running_string(behind=1),
    "sg": running_string(behind=1),
    "torchrun": setting(*TORCHRUN),
    "accelerate": _elsewhere("accelerate sets what its file of settings says"),
    "deepspeed": _elsewhere("deepspeed sets what .deepspeed_env says"),
    "uv": uv,
    "poetry": setting(*VENV),
    **dict.fromkeys(
        ("stdbuf", "catchsegv", "nsys", "ncu", "faketime", "gamemoderun"), setting(*PRELOADING)
    ),
    **dict.fromkeys(("pipenv", "pdm", "hatch", "pixi", "rye", "with-contenv"), _PIPENV),
    "singularity": _singularity,
    "apptainer": _singularity,
    **dict.fromkeys(SHELLS, _shell),
    **dict.fromkeys(
        ("ssh", "pdsh", "clush", "kubectl", "oc", "mpirun", "mpiexec", "sbatch", "salloc", "nomad"),
        _OTHER_MACHINE,
    ),
    **dict.fromkeys(
        ("tmux", "screen", "dtach", "abduco", "su", "runuser", "at", "batch"), _OTHER_SESSION
    ),
    **dict.fromkeys(("pm2", "systemd-run", "supervisorctl", "machinectl"), _MANAGER),
    **dict.fromkeys(("dotenv", "direnv", "doppler", "envdir", "chpst", "aws-vault"), _INJECTOR),
}
