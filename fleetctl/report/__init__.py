"""A run's findings as data, and how they are printed."""
