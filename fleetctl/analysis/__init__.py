"""Estimates, comparisons, power, stopping and the verdict: pure functions of counts."""
