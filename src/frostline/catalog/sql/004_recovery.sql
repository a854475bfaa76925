-- What a run that died leaves for the next one, and what an operation that waits for a lock waits for.

ALTER TABLE frostline.operations
    ADD captured jsonb,
    ADD waiting_since timestamptz,
    ADD waits_for jsonb,
    ADD cleaned_at timestamptz;
COMMENT ON COLUMN frostline.operations.captured IS
    'the leaf as the capture left it: while it is still so and the operation is not done, a later run can go on';
COMMENT ON COLUMN frostline.operations.waits_for IS 'who holds the locks that a running operation wants: a list of sessions';
COMMENT ON COLUMN frostline.operations.cleaned_at IS 'when the files a failed operation may have left were looked for';
ALTER TABLE frostline.steps ADD attempts int NOT NULL DEFAULT 1;

CREATE VIEW frostline.waits AS
SELECT t.relation::text AS "table", o.id AS operation, o.leaf, s.name AS step, o.waiting_since,
       b.pid, b.since, b.state, b.relation, b.mode, b.query
FROM frostline.operations o
JOIN frostline.tables t ON t.id = o.table_id
LEFT JOIN LATERAL (
    SELECT name FROM frostline.steps WHERE operation_id = o.id ORDER BY number DESC LIMIT 1
) s ON true
CROSS JOIN LATERAL jsonb_to_recordset(o.waits_for)
    AS b (pid int, since timestamptz, state text, relation text, mode text, query text)
WHERE o.state = 'running' AND o.waiting_since IS NOT NULL;
COMMENT ON VIEW frostline.waits IS 'running operations that wait for a lock, and who holds it';

CREATE OR REPLACE VIEW frostline.status AS
SELECT t.relation::text AS "table",
       t.hot_for,
       coalesce(t.seam, '-') AS cold_below,
       hot.leaves AS hot_partitions,
       pg_size_pretty(hot.bytes) AS heap,
       cold.periods AS cold_periods,
       cold.rows AS cold_rows,
       pg_size_pretty(cold.bytes) AS lake,
       t.snapshot_id AS iceberg_snapshot,
       coalesce(last.kind || ' of ' || last.leaf || ': ' || last.state || coalesce(' at ' || last.step, ''), '-') AS last_operation,
       waits.text AS waits_for
FROM frostline.tables t
CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE isleaf) AS leaves, coalesce(sum(pg_total_relation_size(relid)), 0)::bigint AS bytes
    FROM pg_partition_tree(t.hot)
) hot
CROSS JOIN LATERAL (
    SELECT count(*) AS periods, coalesce(sum(rows), 0)::bigint AS rows, coalesce(sum(bytes), 0)::bigint AS bytes
    FROM frostline.periods p
    WHERE p.table_id = t.id
) cold
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
