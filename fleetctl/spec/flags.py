"""Flags as a spec writes them: a name, and a text or `false`."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from fleetctl.spec.limits import MOST_ARGUMENT_BYTES, shortened

_FLAG_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def only_false(value: object) -> object:
    """Return a false as it is, for flags that are unset; raise for everything else."""
    if value is not False:  # 0 equals False, and would unset the flag that it was to set
        raise PydanticCustomError("literal_error", "Input should be false")
    return value


Unset = Annotated[Literal[False], BeforeValidator(only_false)]
Flags = dict[str, str | Unset]


def checked_flags(flags: Flags) -> Flags:
    """Return the flags, or raise ValueError for a name or value no environment can carry."""
    for name, value in flags.items():
        checked_flag_name(name)
        if value is not False and "\0" in value:
            raise ValueError(
                f"the value of `{name}` holds a NUL byte, which no environment can carry"
            )
        if value is not False and len(f"{name}={value}".encode()) > MOST_ARGUMENT_BYTES:
            raise ValueError(
                f"the value of `{name}` is too long: Linux passes on {MOST_ARGUMENT_BYTES} bytes "
                "of NAME=value"
            )
    return flags


def checked_flag_name(name: str) -> str:
    """Return the name of a flag, or raise ValueError for one that no variable can have."""
    if not _FLAG_NAME.match(name) or name == "_":
        raise ValueError(f"`{shortened(name)}` can't be the name of an environment variable")
    return name
