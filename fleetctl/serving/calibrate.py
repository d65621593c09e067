"""How many of the served model's tokens a filler word takes: asked once per experiment."""

from __future__ import annotations

import json

from fleetctl.serving.probe import Answered, HttpProbe
from fleetctl.trial.events import Exchange
from fleetctl.trial.filler import filler_text
from fleetctl.trial.reply import assemble
from fleetctl.trial.scenario import Calibration

WORDS = (64, 320)
REQUEST_S = 60.0
_SEED = 0


def calibrate(probe: HttpProbe, model: str) -> Calibration:
    """Return the tokens per filler word, from `usage.prompt_tokens` of two short requests.

    Their difference cancels what the chat template adds. A server that reports no usage, or an
    impossible one, leaves the default, marked `assumed`.
    """
    short, long = (_prompt_tokens(probe, model, words) for words in WORDS)
    if short is None or long is None or long <= short:
        return Calibration()
    return Calibration((long - short) / (WORDS[1] - WORDS[0]), "usage")


def _prompt_tokens(probe: HttpProbe, model: str, words: int) -> int | None:
    body = {
        "model": model,
        "messages": [{"role": "user", "content": filler_text(words, _SEED)}],
        "max_tokens": 1,
        "stream": False,
    }
    answer = probe.chat(json.dumps(body).encode(), deadline_s=REQUEST_S)
    if not isinstance(answer, Answered) or answer.status != 200:
        return None
    text = answer.body.decode("utf-8", "replace")
    return assemble(Exchange(1, "", status=200, body=text)).usage.prompt_tokens
