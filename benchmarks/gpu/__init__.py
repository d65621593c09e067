"""Measurements of the payload's kernels and runners on a GPU."""
