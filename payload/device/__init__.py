"""Streams, graphs and the memory they share: the one place where a GPU and a CPU differ."""
