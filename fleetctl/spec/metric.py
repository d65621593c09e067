"""What makes a session count as bad, by the name that a spec gives it. Imports nothing heavy."""

from __future__ import annotations

from typing import Literal

Metric = Literal["corruption", "failures"]
"""`corruption`: its class is corrupt. `failures`: it did not end as asked, so corrupt ones, too."""
