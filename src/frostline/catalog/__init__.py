"""The registry in Postgres: migrations and typed access. Knows no engine."""
