"""Maintenance of the lake: other files, the same rows."""
