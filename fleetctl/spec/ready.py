"""When a service counts as ready: layers, each with a deadline of its own."""

from __future__ import annotations

from pydantic import Field, field_validator, model_validator

from fleetctl.spec.quantities import Duration, Limit, Pattern, pause_s
from fleetctl.spec.value import Value


class Layer(Value):
    """One layer of readiness.

    Attributes:
        deadline: how long it may take.
        poll: how often it is asked; early polls come faster, so that a quick start is noticed.
    """

    deadline: Limit
    poll: Duration

    _pause = field_validator("poll")(pause_s)


class Ready(Value):
    """Readiness in layers.

    Attributes:
        active: systemd says the unit is active and it does not loop.
        port: something listens.
        health: the health path answers 200.
        completion: a real chat completion comes back, with the expected model id.
        tool_call: also require a tool call that parses.
        tool_call_layer: its deadline and poll; left out, those of the completion hold.
        concurrent: also require this many completions at once.
        concurrent_layer: likewise.
        gpu_idle_mib: memory in use on each GPU must fall to this many MiB between stop and start,
            within `stop`; left out, `nvidia-smi` is not asked.
        progress: patterns with one number in parentheses, shown while waiting.
        soak: how long the unit must stay up to count as started.
        stop: how long its processes may take to end; one that stays is named, not killed.
    """

    active: Layer = Layer(deadline="60s", poll="1s")  # type: ignore[arg-type]
    port: Layer = Layer(deadline="5m", poll="1s")  # type: ignore[arg-type]
    health: Layer = Layer(deadline="5m", poll="5s")  # type: ignore[arg-type]
    completion: Layer = Layer(deadline="5m", poll="3s")  # type: ignore[arg-type]
    tool_call: bool = False
    tool_call_layer: Layer | None = None
    concurrent: int = Field(default=0, ge=0, le=100_000)
    concurrent_layer: Layer | None = None
    gpu_idle_mib: int | None = Field(default=None, ge=0, le=100_000_000)
    progress: tuple[Pattern, ...] = ()
    soak: Duration = 1.0
    stop: Limit = 90.0

    @model_validator(mode="after")
    def _layers_are_asked(self) -> Ready:
        if self.tool_call_layer is not None and not self.tool_call:
            raise ValueError("`tool_call_layer` says how long, and `tool_call` is not true")
        if self.concurrent_layer is not None and not self.concurrent:
            raise ValueError("`concurrent_layer` says how long, and `concurrent` is 0")
        return self
