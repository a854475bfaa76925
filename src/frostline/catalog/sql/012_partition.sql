-- Plain tables on their way to being partitioned: what is done and what is next, so that any run can go on from there.

CREATE TABLE frostline.partitionings (
    source    oid PRIMARY KEY,
    target    oid NOT NULL UNIQUE,
    plan      jsonb NOT NULL,
    shape     jsonb NOT NULL,
    state     text NOT NULL DEFAULT 'made' CHECK (state IN ('made', 'copying', 'copied', 'swapped')),
    filenode  oid,
    pages     bigint,
    next_page bigint NOT NULL DEFAULT 0,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE frostline.partitionings IS 'plain tables that are being copied into partitioned ones';
COMMENT ON COLUMN frostline.partitionings.source IS 'the table as it was; after the swap, the one kept under another name';
COMMENT ON COLUMN frostline.partitionings.target IS 'the partitioned table that takes its place';
COMMENT ON COLUMN frostline.partitionings.shape IS 'all that the new table is to have too, as it was at the beginning';
COMMENT ON COLUMN frostline.partitionings.filenode IS 'the file whose pages are being copied';
COMMENT ON COLUMN frostline.partitionings.pages IS 'how many of them: rows on later pages are known from the log';

-- While a table is copied its rows are known one by one; TRUNCATE says of none that it is gone.
CREATE FUNCTION frostline.no_truncate() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '55006',
        MESSAGE = pg_catalog.format('%I.%I is being partitioned and cannot be truncated', TG_TABLE_SCHEMA, TG_TABLE_NAME),
        HINT = 'Delete its rows, or end the partitioning: frostline partition ... --abandon';
END $$;

-- What is kept of a table after it was partitioned is a copy of that moment, and nobody is to take it for the table.
CREATE FUNCTION frostline.closed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = '55000',
        MESSAGE = pg_catalog.format('%I.%I is what a table was before it was partitioned', TG_TABLE_SCHEMA, TG_TABLE_NAME),
        HINT = 'Run the statement again: it then finds the partitioned table. This copy can be dropped.';
END $$;
