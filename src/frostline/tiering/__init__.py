"""Moving a table's partitions between Postgres and the lake."""
