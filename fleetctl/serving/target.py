"""Where a served model is, seen from outside."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

from fleetctl.errors import InputError


@dataclass(frozen=True)
class Target:
    """An OpenAI-compatible server.

    Attributes:
        url: its base, with or without `/v1`.
        model: the model's name in requests.
        api_key: bearer token; never recorded or shown.
    """

    url: str
    model: str
    api_key: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InputError(
                "not a server's address",
                why=f"`{self.url}` is no http:// or https:// URL",
                next_step="give one such as http://127.0.0.1:30000",
            )

    @property
    def api(self) -> str:
        """The base of the OpenAI API, ending in `/v1`."""
        base = self.url.rstrip("/")
        return base if base.endswith("/v1") else f"{base}/v1"

    @property
    def chat_url(self) -> str:
        """Where chat completions are asked for."""
        return f"{self.api}/chat/completions"

    @property
    def shown_url(self) -> str:
        """The address without a name and password that it may hold."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return urlunsplit((parts.scheme, f"{parts.hostname}{port}", parts.path, "", ""))

    @property
    def headers(self) -> dict[str, str]:
        """Request headers."""
        plain = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        return plain | ({"Authorization": f"Bearer {self.api_key}"} if self.api_key else {})
