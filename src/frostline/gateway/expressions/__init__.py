"""Expressions of the statements that arrive: read, typed as Postgres types them, and written for DuckDB."""
