-- name: resolve
-- A table by schema and name.
SELECT c.oid, c.relkind::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(name)s;

-- name: relation
-- Schema and name of a relation.
SELECT n.nspname, c.relname
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = %(oid)s;

-- name: owner
SELECT r.rolname FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner WHERE c.oid = %(oid)s;

-- name: columns
-- Live columns with the base type under any domain.
WITH RECURSIVE base AS (
    SELECT a.attnum, t.oid AS typid, t.typtype, t.typbasetype,
           CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END AS typmod
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT b.attnum, t.oid, t.typtype, t.typbasetype,
           CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE b.typmod END
    FROM base b JOIN pg_type t ON t.oid = b.typbasetype
    WHERE b.typtype = 'd'
)
SELECT a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), format_type(t.oid, b.typmod), t.typname, b.typmod,
       t.typnamespace = 'pg_catalog'::regnamespace AS builtin, t.typtype::text, a.attnotnull,
       a.attgenerated::text, a.attidentity::text,
       coalesce((SELECT collisdeterministic FROM pg_collation WHERE oid = a.attcollation), true) AS deterministic
FROM pg_attribute a
JOIN base b ON b.attnum = a.attnum AND b.typtype <> 'd'
JOIN pg_type t ON t.oid = b.typid
WHERE a.attrelid = %(oid)s
ORDER BY a.attnum;

-- name: partition_key
-- How a partitioned table is cut; the column is NULL when the key is an expression.
SELECT p.partstrat::text, p.partnatts, a.attname, t.typname
FROM pg_partitioned_table p
LEFT JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
LEFT JOIN pg_type t ON t.oid = a.atttypid
WHERE p.partrelid = %(oid)s;

-- name: primary_key
-- Columns of the primary key, in key order.
SELECT a.attname
FROM pg_constraint c
CROSS JOIN LATERAL unnest(c.conkey) WITH ORDINALITY k(attnum, position)
JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum
WHERE c.conrelid = %(oid)s AND c.contype = 'p'
ORDER BY k.position;

-- name: partitions
-- Direct partitions with their bounds.
SELECT c.oid, n.nspname, c.relname, pg_get_expr(c.relpartbound, c.oid), c.relkind::text, c.relpersistence::text
FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE i.inhparent = %(oid)s
ORDER BY c.relname;

-- name: managed
-- One managed table by the user's relation.
SELECT t.id, t.relation::oid, t.hot::oid, t.delta::oid, t.hot_for, t.lake_namespace, t.lake_table, t.seam, t.snapshot_id,
       t.metadata_location
FROM frostline.tables t
WHERE t.relation = %(oid)s::regclass;

-- name: lake_columns
-- Lake column names by attribute number.
SELECT attnum, lake_name FROM frostline.columns WHERE table_id = %(table)s;

-- name: lake_names_taken
-- Lake tables in use, those of tables that are no longer registered included.
SELECT lake_namespace, lake_table FROM frostline.tables
UNION
SELECT table_namespace, table_name FROM frostline_lake.iceberg_tables;

-- name: names_in_schema
-- Every relation name in a schema.
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %(schema)s;

-- name: constraints
-- The constraints a table with foreign partitions cannot have.
SELECT conname, contype::text, pg_get_constraintdef(oid)
FROM pg_constraint
WHERE conrelid = %(oid)s AND contype IN ('p', 'f') AND conparentid = 0
ORDER BY contype = 'p' DESC, conname;

-- name: row_triggers
SELECT tgname FROM pg_trigger WHERE tgrelid = %(oid)s AND NOT tgisinternal AND tgtype & 1 = 1;

-- name: publications
SELECT pubname
FROM pg_publication p
WHERE puballtables OR EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = %(oid)s);

-- name: is_partition
SELECT relname FROM pg_class WHERE oid = %(oid)s AND relispartition;

-- name: enum_columns
SELECT a.attname
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND t.typtype = 'e';

-- name: inbound_foreign_keys
SELECT conrelid::regclass::text || '.' || conname
FROM pg_constraint
WHERE confrelid = %(oid)s AND contype = 'f' AND conparentid = 0;

-- name: secondary_unique
SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %(oid)s AND indisunique AND NOT indisprimary;

-- name: exclusions
SELECT conname FROM pg_constraint WHERE conrelid = %(oid)s AND contype = 'x';

-- name: views_on_primary_key
-- A view that groups by the primary key depends on the constraint itself.
SELECT DISTINCT v.oid::regclass::text
FROM pg_constraint c
JOIN pg_depend d ON d.refclassid = 'pg_constraint'::regclass AND d.refobjid = c.oid AND d.classid = 'pg_rewrite'::regclass
JOIN pg_rewrite r ON r.oid = d.objid
JOIN pg_class v ON v.oid = r.ev_class
WHERE c.conrelid = %(oid)s AND c.contype = 'p';

-- name: deferrable_key
SELECT conname FROM pg_constraint WHERE conrelid = %(oid)s AND contype = 'p' AND condeferrable;

-- name: not_valid
SELECT conname FROM pg_constraint WHERE conrelid = %(oid)s AND NOT convalidated;

-- name: foreign_keys
SELECT conname FROM pg_constraint WHERE conrelid = %(oid)s AND contype = 'f';

-- name: state_of_leaf
-- What must not change while a leaf is archived: who it is, its file, and its capture triggers (A: fire always).
SELECT c.oid, pg_relation_filenode(c.oid), c.relrowsecurity,
       ARRAY(SELECT tgname || ' ' || tgenabled::text FROM pg_trigger
             WHERE tgrelid = c.oid AND tgname LIKE '!frostline%%' ORDER BY 1)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(name)s;

-- name: constraint_triggers
SELECT tgname FROM pg_trigger WHERE tgrelid = %(oid)s AND NOT tgisinternal AND tgconstraint <> 0;

-- name: transition_triggers
SELECT tgname
FROM pg_trigger
WHERE tgrelid = %(oid)s AND NOT tgisinternal AND (tgoldtable IS NOT NULL OR tgnewtable IS NOT NULL);

-- name: subscriptions
SELECT srsubid::text FROM pg_subscription_rel WHERE srrelid = %(oid)s;

-- name: foreign_owner
-- The owner, when the role we are is not a member of it.
SELECT relowner::regrole::text FROM pg_class WHERE oid = %(oid)s AND NOT pg_has_role(relowner, 'USAGE');

-- name: closed_schema
-- The table's schema, when we may not create relations in it.
SELECT n.nspname
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = %(oid)s AND NOT has_schema_privilege(n.oid, 'CREATE');

-- name: dependents
-- Views and foreign keys that refer to one relation itself.
SELECT DISTINCT r.ev_class::regclass::text
FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = %(oid)s
UNION
SELECT conrelid::regclass::text FROM pg_constraint WHERE confrelid = %(oid)s AND contype = 'f';

-- name: grants
-- Grants on one relation to others than its owner; regrole prints a name as SQL wants it.
SELECT CASE WHEN a.grantee <> 0 THEN a.grantee::regrole::text ELSE 'PUBLIC' END, a.privilege_type, a.is_grantable
FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
WHERE c.oid = %(oid)s AND a.grantee <> c.relowner
  AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRIGGER');

-- name: operations
SELECT id::text FROM frostline.operations WHERE table_id = %(table)s;

-- name: copy_size
-- Since 18: what the planner believes of a relation's size.
SELECT pg_restore_relation_stats('schemaname', %(schema)s::text, 'relname', %(name)s::text,
    'relpages', %(pages)s::int, 'reltuples', %(rows)s::real);

-- name: copy_column_statistics
-- Since 18: every column's statistics of one relation given to another with the same columns.
SELECT s.attname, pg_restore_attribute_stats(
    'schemaname', %(schema)s::text, 'relname', %(name)s::text, 'attname', s.attname::text, 'inherited', false,
    'null_frac', s.null_frac, 'avg_width', s.avg_width, 'n_distinct', s.n_distinct,
    'most_common_vals', s.most_common_vals::text, 'most_common_freqs', s.most_common_freqs,
    'histogram_bounds', s.histogram_bounds::text, 'correlation', s.correlation,
    'most_common_elems', s.most_common_elems::text, 'most_common_elem_freqs', s.most_common_elem_freqs,
    'elem_count_histogram', s.elem_count_histogram,
    'range_length_histogram', s.range_length_histogram::text, 'range_empty_frac', s.range_empty_frac,
    'range_bounds_histogram', s.range_bounds_histogram::text)
FROM pg_stats s
WHERE s.schemaname = %(from_schema)s AND s.tablename = %(from_name)s AND NOT s.inherited;

-- name: unmeasured_periods
-- Foreign partitions the planner knows nothing about, with what the registry knows.
SELECT n.nspname, c.relname, p.rows, p.bytes
FROM frostline.periods p
JOIN pg_class c ON c.oid = p.foreign_table
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.table_id = %(table)s AND c.reltuples < 0;

-- name: holders
-- Sessions whose locks conflict with ours on any of these relations; `writers`: with a lock that lets readers be.
SELECT l.pid, coalesce(to_char(a.xact_start, 'YYYY-MM-DD HH24:MI:SSOF'), '?'),
       coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 1e9)::float8 AS age,
       coalesce(a.state, CASE WHEN l.pid IS NULL THEN 'prepared transaction' ELSE a.backend_type END, '?'),
       l.relation::regclass::text, l.mode, coalesce(left(a.query, 200), '')
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND l.granted AND l.relation = ANY (%(relations)s::oid[])
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.pid IS DISTINCT FROM pg_backend_pid()
  AND NOT (%(writers)s AND l.mode IN ('AccessShareLock', 'RowShareLock'))
ORDER BY age DESC, l.pid, l.relation;

-- name: referenced
-- Tables that foreign keys of these relations point to: detaching a partition locks them.
SELECT DISTINCT n.nspname, c.relname, c.oid
FROM pg_constraint k JOIN pg_class c ON c.oid = k.confrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE k.contype = 'f' AND k.conrelid = ANY (%(relations)s::oid[])
ORDER BY 1, 2;

-- name: unfinished
-- Operations whose run ended before they did: where they stand, and whether the swap was made.
SELECT o.id, o.leaf, o.lower, o.upper, o.state, o.captured, o.snapshot_id,
       coalesce((SELECT s.name FROM frostline.steps s WHERE s.operation_id = o.id ORDER BY s.number DESC LIMIT 1),
                'its beginning') AS step,
       p.foreign_table::oid AS foreign_table, to_regclass('frostline_delta.dropped_' || o.id) IS NOT NULL AS parked
FROM frostline.operations o LEFT JOIN frostline.periods p ON p.operation_id = o.id
WHERE o.table_id = %(table)s
  AND (o.state = 'running' OR o.captured IS NOT NULL AND o.state <> 'done'
       OR to_regclass('frostline_delta.dropped_' || o.id) IS NOT NULL)
ORDER BY o.id;

-- name: captured_relations
-- Relations that carry triggers of a table's capture, wherever they are now.
SELECT DISTINCT c.oid, n.nspname, c.relname
FROM pg_trigger t
JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_proc f ON f.oid = t.tgfoid
WHERE f.pronamespace = 'frostline_delta'::regnamespace AND f.proname = ANY (%(functions)s::text[])
ORDER BY 1;
