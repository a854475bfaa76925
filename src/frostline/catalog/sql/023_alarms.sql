-- Alarms: what `frostline verify` found wrong with a cold period, and what an archive run found wrong with its copy of one.

ALTER TABLE frostline.operations ADD COLUMN alarm text;
COMMENT ON COLUMN frostline.operations.alarm IS
    'archive: what was different when the leaf and its copy in the lake were compared; NULL: nothing, or it did not come to that';

-- Of an archive run: until a later one has archived the leaf, or whatever stands in its place by then. The last that failed is told.
CREATE VIEW frostline.alarms AS
SELECT t.relation::text AS "table", p.foreign_table::text AS period, 'verify' AS found_by, p.verified_at AS found_at, p.alarm
FROM frostline.periods p JOIN frostline.tables t ON t.id = p.table_id
WHERE p.alarm IS NOT NULL
UNION ALL
SELECT t.relation::text, o.leaf, 'archive', o.finished_at, o.alarm
FROM frostline.operations o JOIN frostline.tables t ON t.id = o.table_id
WHERE o.alarm IS NOT NULL AND o.state <> 'done' AND NOT EXISTS (
    SELECT FROM frostline.operations later
    WHERE later.table_id = o.table_id AND later.kind = 'archive' AND later.id > o.id
      AND (later.leaf = o.leaf OR later.lower IS NOT DISTINCT FROM o.lower)
      AND (later.state = 'done' OR later.alarm IS NOT NULL)
)
ORDER BY 1, 2;
COMMENT ON VIEW frostline.alarms IS 'periods of which the lake does not hold what it should, or whose copy was not taken over for that';

-- With all of them.
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
       alarms.text AS alarm
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
) waits ON true
LEFT JOIN LATERAL (
    SELECT string_agg(a.period || ': ' || a.alarm, '; ' ORDER BY a.period) AS text
    FROM frostline.alarms a
    WHERE a."table" = t.relation::text
) alarms ON true;
