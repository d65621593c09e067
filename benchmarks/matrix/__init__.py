"""A matrix on a lab: how much faster four hosts are than one, and what kills do to it."""
