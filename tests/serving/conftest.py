"""Fixtures of the serving tests."""

from tests.fakes.openai_server import serve

__all__ = ["serve"]
