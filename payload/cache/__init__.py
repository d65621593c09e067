"""Paged key caches."""
