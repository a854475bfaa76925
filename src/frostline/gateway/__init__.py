"""The server that postgres_fdw talks to: Postgres's protocol outside, DuckDB over Iceberg inside."""
