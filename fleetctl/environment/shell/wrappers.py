"""Programs around a server that mostly pass the environment on, and what they change in it."""

from __future__ import annotations

from fleetctl.environment.shell.command_line import Payload, Reader, Step

TORCHRUN = (
    *("OMP_NUM_THREADS", "RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE"),
    *("LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    *("TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCHELASTIC_RUN_ID"),
)
"""What torchrun gives its workers; source: torch.distributed.run, "Environment Variables"."""
PRELOADING = ("LD_PRELOAD", "_STDBUF_I", "_STDBUF_O", "_STDBUF_E")
VENV = ("VIRTUAL_ENV", "PATH")


def running_string(*, behind: int) -> Step:
    """Return the step of `flock FILE -c STRING` and the like; `behind` words are its operands."""

    def step(reader: Reader, position: int) -> int:
        position += 1
        operands = behind
        while position < len(reader.fields):
            text = reader.at(position)
            if text in ("-c", "--command") or (text[:1] == "-" and text[-1:] == "c" != text[1:2]):
                reader.payload = Payload.SHELL
                if position + 1 < len(reader.fields):
                    reader.text = reader.fields[position + 1]
                return position + 2
            if text.startswith("--command="):
                reader.block("the command stands in an option of its own")
            elif not text.startswith("-"):
                if operands == 0:
                    return position
                operands -= 1
            position += 1
        return position

    return step


def blocking_options(why: str, *options: str) -> Step:
    """Return the step of a program that passes all on, unless it has one of these options."""

    def step(reader: Reader, position: int) -> int:
        position += 1
        while reader.option(position):
            text = reader.at(position)
            name = text.partition("=")[0]
            short = [o for o in options if len(o) == 2 and not text.startswith("--")]
            if name in options or any(text.startswith(o) for o in short):
                reader.block(f"{why} {name}")
            position += 1
        return position

    return step


def setting(*names: str) -> Step:
    """Return the step of a program that sets some variables, some of them only where unset."""

    def step(reader: Reader, position: int) -> int:
        reader.altered.update(names)
        position += 1
        while reader.option(position):
            position += 1
        return position

    return step


def uv(reader: Reader, position: int) -> int:
    """Read `uv run`, which may read a file of variables."""
    reader.altered.update(VENV)
    position += 1
    while position < len(reader.fields) and reader.at(position) in ("run", "tool", "--quiet", "-q"):
        position += 1
    while option := reader.option(position):
        if option.startswith("--env-file"):
            reader.filed = True
        position += 1
    return position
