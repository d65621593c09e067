"""Fixtures of the command line tests."""

from tests.fakes.openai_server import serve

__all__ = ["serve"]
