"""A fault campaign: break a transaction in every way, and see that the host comes back."""
