"""SIGKILL at system calls of an apply, a restore and a recovery: the host always comes back.

strace delivers the signal; the product has no hooks for it. Here a spread of the calls is tried;
`python -m benchmarks.faults` tries every one.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
