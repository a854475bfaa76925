"""The lake: Iceberg catalogs, tables and snapshots."""
