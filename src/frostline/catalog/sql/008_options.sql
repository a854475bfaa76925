-- Options of a table that stand before the settings, and operations that rewrite the lake without changing a row.

ALTER TABLE frostline.tables
    ADD COLUMN IF NOT EXISTS retention text,
    ADD COLUMN file_size bigint CHECK (file_size > 0),
    ADD COLUMN fold_rows bigint CHECK (fold_rows > 0),
    ADD COLUMN fold_bytes bigint CHECK (fold_bytes > 0),
    ADD COLUMN fold_age float8 CHECK (fold_age >= 0),
    ADD COLUMN maintenance text NOT NULL DEFAULT 'auto' CHECK (maintenance IN ('auto', 'none')),
    ADD COLUMN compact_files int CHECK (compact_files > 1),
    ADD COLUMN backup_window float8 CHECK (backup_window >= 0);
COMMENT ON COLUMN frostline.tables.retention IS 'how long rows are kept at all; NULL: for ever';
COMMENT ON COLUMN frostline.tables.file_size IS 'of a data file, as large as its rows are in Postgres; NULL: the setting lake.file_size';
COMMENT ON COLUMN frostline.tables.fold_rows IS 'changes of cold rows that make the table be folded; NULL: the setting fold.rows';
COMMENT ON COLUMN frostline.tables.fold_bytes IS 'the same by their size; NULL: the setting fold.bytes';
COMMENT ON COLUMN frostline.tables.fold_age IS 'seconds since the last fold after which any change does; NULL: the setting fold.age';
COMMENT ON COLUMN frostline.tables.maintenance IS 'auto: the worker looks after the files in the lake; none: it leaves them alone';
COMMENT ON COLUMN frostline.tables.compact_files IS 'files too many in a partition of the lake that make it be rewritten; NULL: the setting maintenance.files';
COMMENT ON COLUMN frostline.tables.backup_window IS
    'seconds for which Iceberg snapshots stay that a restored Postgres may want; NULL: the setting maintenance.backup_window';
