"""Declarative experiments on the GPU hosts that serve language models."""
