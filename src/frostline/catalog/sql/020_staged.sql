-- Many new cold rows at once: files of the lake that Iceberg does not know yet.

ALTER TABLE frostline.tables ADD COLUMN staged bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN frostline.tables.staged IS 'how often files were staged: a change of cold rows that was computed at another number is out of date';
ALTER TABLE frostline.tables ADD COLUMN bulk_rows bigint CHECK (bulk_rows > 0);
COMMENT ON COLUMN frostline.tables.bulk_rows IS
    'new cold rows of one statement that are written to data files at once; NULL: the setting gateway.bulk_rows';

CREATE TABLE frostline.staged_files (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    table_id  bigint NOT NULL REFERENCES frostline.tables ON DELETE CASCADE,
    path      text NOT NULL UNIQUE,
    rows      bigint NOT NULL,
    bytes     bigint NOT NULL,
    entry     jsonb NOT NULL,
    staged_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX ON frostline.staged_files (table_id);
COMMENT ON TABLE frostline.staged_files IS
    'data files with new cold rows, readable like those of the Iceberg snapshot; the next fold adds them to the Iceberg table as they are';
COMMENT ON COLUMN frostline.staged_files.entry IS 'what a manifest will say of the file';

ALTER TABLE frostline.operations DROP CONSTRAINT operations_kind_check;
ALTER TABLE frostline.operations ADD CONSTRAINT operations_kind_check
    CHECK (kind IN ('archive', 'coalesce', 'fold', 'untier', 'trim', 'maintain', 'retention', 'append'));
ALTER TABLE frostline.operations ADD COLUMN loaded_staged bigint;
COMMENT ON COLUMN frostline.operations.loaded_staged IS 'untier: the number in frostline.tables.staged when the period was read';

-- The files of a batch that a gateway holds: the argument is the table and the batch; the answer, a JSON array of entries.
CREATE FOREIGN TABLE frostline.call_staged (argument text, answer text)
    SERVER "frostline gateway (frostline up starts it)" OPTIONS (schema_name 'frostline call', table_name 'staged');

-- Takes the files of a batch over, as part of the transaction that wrote their rows. Files have no chain of versions that
-- tells a lost race, so whoever calls this holds the fence alone.
CREATE FUNCTION frostline.stage(table_id bigint, batch int) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
#variable_conflict use_column
DECLARE
    said text := format('%s %s', stage.table_id, stage.batch);
    entries text;
BEGIN
    DELETE FROM frostline.call_staged c WHERE c.argument = said RETURNING c.answer INTO entries;
    INSERT INTO frostline.staged_files (table_id, path, rows, bytes, entry)
    SELECT stage.table_id, e ->> 'path', (e ->> 'rows')::bigint, (e ->> 'size')::bigint, e
    FROM jsonb_array_elements(entries::jsonb) e;
    UPDATE frostline.tables t SET staged = t.staged + 1 WHERE t.id = stage.table_id;
END $$;

-- With what is staged.
CREATE OR REPLACE VIEW frostline.status AS
SELECT t.relation::text AS "table",
       t.hot_for,
       coalesce(t.seam, '-') AS cold_below,
       hot.leaves AS hot_partitions,
       pg_size_pretty(hot.bytes) AS heap,
       cold.periods AS cold_periods,
       cold.rows + staged.rows AS cold_rows,
       pg_size_pretty(cold.bytes + staged.bytes) AS lake,
       t.snapshot_id AS iceberg_snapshot,
       coalesce(last.kind || ' of ' || last.leaf || ': ' || last.state || coalesce(' at ' || last.step, ''), '-') AS last_operation,
       waits.text AS waits_for,
       cold.alarm
FROM frostline.tables t
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE isleaf) AS leaves, coalesce(sum(pg_total_relation_size(relid)), 0)::bigint AS bytes
    FROM pg_partition_tree(t.hot)
) hot
CROSS JOIN LATERAL (
    SELECT count(*) AS periods, coalesce(sum(rows), 0)::bigint AS rows, coalesce(sum(bytes), 0)::bigint AS bytes,
           string_agg(p.foreign_table::text || ': ' || p.alarm, '; ' ORDER BY p.upper) AS alarm
    FROM frostline.periods p
    WHERE p.table_id = t.id
) cold
CROSS JOIN LATERAL (
    SELECT coalesce(sum(f.rows), 0)::bigint AS rows, coalesce(sum(f.bytes), 0)::bigint AS bytes
    FROM frostline.staged_files f
    WHERE f.table_id = t.id
) staged
LEFT JOIN LATERAL (
    SELECT o.kind, o.leaf, o.state, CASE WHEN o.state <> 'done' THEN s.name END AS step
    FROM frostline.operations o
    LEFT JOIN frostline.steps s ON s.operation_id = o.id
    WHERE o.table_id = t.id
    ORDER BY o.id DESC, s.number DESC
    LIMIT 1
) last ON true
LEFT JOIN LATERAL (
    SELECT string_agg(format('pid %s (%s since %s): %s', w.pid, w.state, to_char(w.since, 'HH24:MI:SS'), w.query), '; '
                      ORDER BY w.since) AS text
    FROM frostline.waits w
    WHERE w."table" = t.relation::text
) waits ON true;
