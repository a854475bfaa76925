"""Bringing periods back from the lake: load, follow, compare, attach; then the lake is trimmed."""
