"""The workload: sleeps as a GPU would decode, and reads its rate from the flags that serve.

The fault is planted: with bf16 keys and overlapping streams 30 % of the sessions are bad, a third
of that under a probe, else 1 %. Standard library only; deterministic in run and cell.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
import urllib.request
from pathlib import Path

SESSIONS = 40
HIGH, LOW, PROBED = 0.30, 0.01, 0.10


def rate(flags: dict[str, str]) -> float:
    """Return the planted rate of what serves."""
    if flags.get("SGLANG_DSV4_BF16_INDEX_K") == "0":
        return LOW
    if flags.get("SGLANG_OPT_USE_MULTI_STREAM_OVERLAP") == "0":
        return LOW
    return PROBED if flags.get("SGLANG_DSV4_GE_DIFF") == "1" else HIGH


def main() -> None:
    """Sleep, draw, and write the result where fleetctl asks for it."""
    time.sleep(float(sys.argv[1]))
    with urllib.request.urlopen(os.environ["FLEETCTL_URL"] + "/flags") as answer:
        flags = json.load(answer)
    dice = random.Random(f"{os.environ['FLEETCTL_RUN']}/{os.environ['FLEETCTL_ARM']}")
    bad = sum(dice.random() < rate(flags) for _ in range(SESSIONS))
    counts = {"leak": bad, "done": SESSIONS - bad}
    result = {"sessions": SESSIONS, "counts": counts}
    Path(os.environ["FLEETCTL_RESULT"]).write_text(json.dumps(result), encoding="utf-8")


if __name__ == "__main__":
    main()
