-- Queries of `frostline assess`. They work without a registry and for any role that may connect.

-- name: user_tables
-- Every table of a user that is no partition: not those of extensions, and none of ours.
SELECT c.oid, n.nspname, c.relname, c.relkind::text,
       has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') AS readable,
       EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND t.tgname = '!frostline') AS registered,
       c.relpages::bigint * current_setting('block_size')::bigint AS guess
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'frostline', 'frostline_delta', 'frostline_lake')
  AND NOT EXISTS (SELECT FROM pg_depend d
                  WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
ORDER BY n.nspname, c.relname;

-- name: sizes
-- A table, or every leaf of a partitioned one, by the direct partition it belongs to. Each size is a look at a file.
SELECT t.direct, c.oid, pg_get_expr(d.relpartbound, d.oid), c.relkind::text, c.reltuples::float8,
       coalesce(pg_table_size(c.oid), 0) - coalesce(pg_total_relation_size(nullif(c.reltoastrelid, 0)), 0) AS heap,
       coalesce(pg_indexes_size(c.oid), 0) AS indexes,
       coalesce(pg_total_relation_size(nullif(c.reltoastrelid, 0)), 0) AS toast
FROM (
    SELECT c.oid AS direct, c.oid AS leaf FROM pg_class c WHERE c.oid = %(oid)s AND c.relkind = 'r'
    UNION ALL
    SELECT i.inhrelid, tree.relid
    FROM pg_inherits i
    JOIN pg_class p ON p.oid = i.inhparent AND p.relkind = 'p'
    CROSS JOIN LATERAL pg_partition_tree(i.inhrelid) tree
    WHERE i.inhparent = %(oid)s AND tree.isleaf
) t
JOIN pg_class c ON c.oid = t.leaf
JOIN pg_class d ON d.oid = t.direct
WHERE c.relkind IN ('r', 'f');

-- name: time_columns
-- Columns a table could be cut by, the likeliest first: as a moment that never changes is usually made.
SELECT a.attname, t.typname::text,
       4 * a.attnotnull::int
       + 4 * (EXISTS (SELECT FROM pg_index x WHERE x.indrelid = c.oid AND x.indisprimary AND a.attnum = ANY (x.indkey)))::int
       + 3 * first.there::int
       + 3 * (coalesce(pg_get_expr(d.adbin, d.adrelid), '') ~* 'now\(\)|current_timestamp|clock_timestamp')::int
       + 2 * (a.attname ~* '(creat|insert|record|occur|event|order|^ts$|^time|time$|^date|date$|_at$)')::int
       + 2 * (coalesce(abs(s.correlation), 0) > 0.9)::int
       - 5 * (a.attname ~* '(updat|modif|delet|chang|expir|last|valid|until|end|birth)')::int AS likely,
       first.there
FROM pg_class c
JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (
    SELECT EXISTS (SELECT FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_am m ON m.oid = i.relam
                   WHERE x.indrelid = c.oid AND x.indkey[0] = a.attnum AND m.amname = 'btree' AND x.indpred IS NULL
                     AND x.indisvalid) AS there
) first
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
LEFT JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = a.attname AND NOT s.inherited
WHERE c.oid = %(oid)s AND t.typnamespace = 'pg_catalog'::regnamespace AND t.typname IN ('timestamptz', 'timestamp', 'date')
ORDER BY likely DESC, a.attnum;

-- name: key_statistics
-- What ANALYZE knows of a time column, as texts that the column's type prints.
SELECT s.null_frac::float8, s.most_common_vals::text::text[], s.most_common_freqs::float8[],
       s.histogram_bounds::text::text[]
FROM pg_stats s JOIN pg_namespace n ON n.nspname = s.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = s.tablename
WHERE c.oid = %(oid)s AND s.attname = %(column)s AND NOT s.inherited;
