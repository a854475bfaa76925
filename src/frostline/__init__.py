"""A Postgres table whose old rows live in an Apache Iceberg lake, and nobody can tell."""

__version__ = "0.1.0"
