"""Which words are a server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from posixpath import basename

from fleetctl.environment.shell.dataflow import HOLE
from fleetctl.environment.shell.words import Field

_TEXT = re.compile(r"launch_server|api_server")
_MODULE = re.compile(
    r"(^|\.)(launch_server|launch_router|api_server|server|serve|engine|entrypoint)$"
)
_FILE = re.compile(r"(^|/|_)serv(er|e|ing)(_\w+)?\.py$")
_PROGRAMS = frozenset(
    {"trtllm-serve", "llama-server", "text-generation-launcher", "tritonserver", "vllm-server"}
)
_SERVE_VERB = frozenset(
    {"vllm", "sglang", "transformers", "transformers-cli", "lmdeploy", "ollama", "aphrodite"}
    | {"mlc_llm", "mii", "bentoml", "litellm", "trtllm", "openllm", "ray", "tgi", "max"}
)
_IMAGE = re.compile(r"vllm|sglang|text-generation|tritonserver|trtllm|llama", re.IGNORECASE)


def is_server(fields: Sequence[Field], position: int) -> bool:
    """Say whether the word at a position names a server: a program, a module or a file."""
    text = fields[position].text
    if any(blank in text for blank in " \n\t"):
        return False
    following = fields[position + 1].text if position + 1 < len(fields) else ""
    program = basename(text)
    return (
        program in _PROGRAMS
        or _TEXT.search(text) is not None
        or (following == "serve" and (program in _SERVE_VERB or HOLE in program))
        or (text == "-m" and _MODULE.search(following) is not None)
        or _FILE.search(text) is not None
    )


def is_server_image(name: str) -> bool:
    """Say whether a container image serves a model when it is started."""
    return _IMAGE.search(name) is not None


def names_server(text: str) -> bool:
    """Say whether a string for another program starts a server there."""
    served = (basename(a) in _SERVE_VERB and b == "serve" for a, b in pairwise(text.split()))
    return _TEXT.search(text) is not None or any(served)
