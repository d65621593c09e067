"""What every table of a spec or an inventory is."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen value that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
