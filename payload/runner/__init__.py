"""Run one decode step for a batch, eagerly or by replaying a graph: one contract, four variants."""
