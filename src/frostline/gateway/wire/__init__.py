"""The Postgres protocol, version 3, server side; no SQL in here."""
