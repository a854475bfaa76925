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
SELECT a.attnum, a.attname, format_type(a.atttypid, a.atttypmod), format_type(t.oid, b.typmod), t.typname, t.oid, b.typmod,
       t.typnamespace = 'pg_catalog'::regnamespace AS builtin, t.typtype::text, a.attnotnull,
       a.attgenerated::text, a.attidentity::text,
       coalesce((SELECT collisdeterministic FROM pg_collation WHERE oid = a.attcollation), true) AS deterministic
FROM pg_attribute a
JOIN base b ON b.attnum = a.attnum AND b.typtype <> 'd'
JOIN pg_type t ON t.oid = b.typid
WHERE a.attrelid = %(oid)s
ORDER BY a.attnum;

-- name: partition_key
-- How a partitioned table is cut; the column is NULL when the key is an expression. A type of somebody's own is spelled
-- with its schema, so that it is never taken for the built-in one of that name.
SELECT p.partstrat::text, p.partnatts, a.attname,
       CASE WHEN t.typnamespace = 'pg_catalog'::regnamespace THEN t.typname::text ELSE format_type(t.oid, NULL) END,
       o.opcdefault AND o.opcnamespace = 'pg_catalog'::regnamespace
FROM pg_partitioned_table p
LEFT JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
LEFT JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_opclass o ON o.oid = p.partclass[0]
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
       t.metadata_location, t.followed, i.id::text, i.system, i.database::bigint, i.timeline, t.cold_fk, t.premake, t.coalesce_to, t.coalesce_after, t.merge_mode, t.file_size,
       t.fold_rows, t.fold_bytes, t.fold_age, t.maintenance, t.compact_files, t.backup_window, t.lake_partition, t.compaction,
       t.sort_order
FROM frostline.tables t CROSS JOIN frostline.installation i
WHERE t.relation = %(oid)s::regclass;

-- name: new_table
-- The number of a table that is registered.
SELECT nextval(pg_get_serial_sequence('frostline.tables', 'id'));

-- name: next_table
-- The same, without taking it.
SELECT coalesce(pg_sequence_last_value(pg_get_serial_sequence('frostline.tables', 'id')::regclass), 0) + 1;

-- name: managed_tables
-- The relation of every managed table, unless somebody has dropped it, or the partition that its hot rows are in.
SELECT t.relation::oid FROM frostline.tables t JOIN pg_class c ON c.oid = t.relation JOIN pg_class h ON h.oid = t.hot ORDER BY t.id;

-- name: lake_columns
-- Names and field ids in the lake by attribute number.
SELECT attnum, lake_name, field_id FROM frostline.columns
WHERE table_id = %(table)s AND lake_name IS NOT NULL;

-- name: recorded_columns
-- All that is recorded of a table's columns, those that were dropped included; the type as Postgres prints it.
SELECT c.attnum, c.lake_name, c.field_id, c.delta_name, c.base::oid, c.typmod, format_type(c.base, c.typmod), t.typname,
       t.typnamespace = 'pg_catalog'::regnamespace, c.missing, c.undecided,
       c.sense,
       frostline.expression_changed(
           c.expression, frostline.expression(m.relation::oid, c.attnum), frostline.rewritten(m.id))
FROM frostline.columns c JOIN frostline.tables m ON m.id = c.table_id LEFT JOIN pg_type t ON t.oid = c.base
WHERE c.table_id = %(table)s AND c.attnum > 0;

-- name: shape
SELECT frostline.shape(t.id), t.followed FROM frostline.tables t WHERE t.id = %(table)s;

-- name: senses
-- A table's shape and, as of the same moment, what the text of its columns' values depends on.
SELECT frostline.shape(t.id),
       (SELECT coalesce(jsonb_object_agg(a.attnum, frostline.sense(a.atttypid)), '{}') FROM pg_attribute a
        WHERE a.attrelid = t.relation AND a.attnum > 0 AND NOT a.attisdropped AND a.atttypid >= 16384)
FROM frostline.tables t WHERE t.id = %(table)s;

-- name: lake_names_taken
-- Lake tables in use, those of tables that are no longer registered included.
SELECT lake_namespace, lake_table FROM frostline.tables
UNION
SELECT table_namespace, table_name FROM frostline_lake.iceberg_tables;

-- name: names_in_schema
-- Every relation name in a schema.
SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %(schema)s;

-- name: constraints
-- The constraints a table with foreign partitions cannot have, with their index's options and their comment.
SELECT c.conname, c.contype::text,
       pg_get_constraintdef(c.oid)
       || coalesce(' WITH (' || array_to_string(i.reloptions, ', ') || ')', '')
       || coalesce(' USING INDEX TABLESPACE ' || quote_ident(s.spcname), ''),
       obj_description(c.oid, 'pg_constraint')
FROM pg_constraint c
LEFT JOIN pg_class i ON i.oid = c.conindid AND c.contype IN ('p', 'u')
LEFT JOIN pg_tablespace s ON s.oid = i.reltablespace
WHERE c.conrelid = %(oid)s AND c.contype IN ('p', 'f', 'u') AND c.conparentid = 0
ORDER BY c.contype = 'p' DESC, c.conname;

-- name: unproven_constraints
-- CHECKs and NOT NULLs that rows which are there need not satisfy. Where the hot partition alone was validated they
-- must: Postgres attaches nothing to it that may not satisfy them.
SELECT c.conname, pg_get_constraintdef(c.oid) FROM pg_constraint c
WHERE c.conrelid = %(oid)s AND c.contype IN ('c', 'n') AND NOT c.convalidated
  AND coalesce((to_jsonb(c) ->> 'conenforced')::bool, true)
  AND NOT EXISTS (
    SELECT FROM pg_constraint h WHERE h.conrelid = %(hot)s AND h.contype = c.contype AND h.convalidated
      AND CASE WHEN c.contype = 'c' THEN h.conname = c.conname ELSE
        (SELECT a.attname FROM pg_attribute a WHERE a.attrelid = c.conrelid AND a.attnum = c.conkey[1])
        = (SELECT a.attname FROM pg_attribute a WHERE a.attrelid = h.conrelid AND a.attnum = h.conkey[1]) END)
ORDER BY c.conname;

-- name: hot_constraints
-- What holds among hot rows only because it was added after registration, by the relation that has it itself.
SELECT n.nspname, r.relname, c.conname, pg_get_constraintdef(c.oid), c.contype = 'x', r.oid = t.relation
FROM frostline.tables t
JOIN pg_constraint c ON c.conrelid IN (t.relation, t.hot) AND c.contype IN ('u', 'x') AND c.conparentid = 0
JOIN pg_class r ON r.oid = c.conrelid JOIN pg_namespace n ON n.oid = r.relnamespace
WHERE t.id = %(table)s
ORDER BY 1, 2, 3;

-- name: placement
-- Where a table's future partitions are put: tablespace and, since 17, access method; NULL: the default.
SELECT s.spcname, a.amname
FROM pg_class c
LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace
LEFT JOIN pg_am a ON a.oid = c.relam
WHERE c.oid = %(oid)s;

-- name: manner
-- How a partition is kept: a new one is made like it.
SELECT c.reloptions, s.spcname, a.amname, c.relreplident::text, c.relrowsecurity
FROM pg_class c
LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace
LEFT JOIN pg_am a ON a.oid = c.relam
WHERE c.oid = %(oid)s;

-- name: statistics_targets
-- SET STATISTICS of columns, of a partition or else of its table.
SELECT t.attname, coalesce(nullif(p.attstattarget, -1), t.attstattarget)
FROM pg_attribute t LEFT JOIN pg_attribute p ON p.attrelid = %(partition)s AND p.attname = t.attname
WHERE t.attrelid = %(table)s AND t.attnum > 0 AND NOT t.attisdropped
  AND coalesce(nullif(p.attstattarget, -1), t.attstattarget) >= 0
ORDER BY t.attnum;

-- name: references
-- Outbound foreign keys: what a trigger on the referenced table must know.
SELECT c.conname, n.nspname, r.relname, c.confdeltype::text, c.confupdtype::text, c.condeferrable, c.condeferred,
       ARRAY(SELECT a.attname::text FROM unnest(c.confkey) k(attnum)
             JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.attnum),
       r.relkind = 'p'
FROM pg_constraint c
JOIN pg_class r ON r.oid = c.confrelid
JOIN pg_namespace n ON n.oid = r.relnamespace
WHERE c.conrelid = %(oid)s AND c.contype = 'f' AND c.conparentid = 0
ORDER BY c.conname;

-- name: reference_guards
-- Triggers on other tables that keep what cold rows of a table refer to.
SELECT t.tgname, n.nspname, c.relname, t.tgdeferrable
FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE t.tgfoid = 'frostline.keep_cold_references()'::regprocedure AND t.tgparentid = 0
  AND split_part(encode(t.tgargs, 'escape'), '\000', 1) = %(table)s::text
ORDER BY t.tgname;

-- name: row_triggers
SELECT tgname FROM pg_trigger WHERE tgrelid = %(oid)s AND NOT tgisinternal AND tgtype & 1 = 1 ORDER BY 1;

-- name: rules
SELECT rulename FROM pg_rewrite WHERE ev_class = %(oid)s ORDER BY 1;

-- name: publications
-- Those that carry the table, a table above it or one of its partitions.
SELECT p.pubname
FROM pg_publication p
WHERE p.puballtables OR EXISTS (
    SELECT FROM pg_class c
    WHERE c.oid IN (SELECT relid FROM pg_partition_ancestors(%(oid)s) UNION SELECT relid FROM pg_partition_tree(%(oid)s))
      AND (EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid)
           OR EXISTS (SELECT FROM pg_publication_namespace n WHERE n.pnpubid = p.oid AND n.pnnspid = c.relnamespace)))
ORDER BY 1;

-- name: publications_by_root
-- Those that send updates and deletes under the table's own name: its replica identity goes with its primary key.
SELECT p.pubname
FROM pg_publication p
WHERE p.pubviaroot AND (p.pubupdate OR p.pubdelete) AND (p.puballtables OR EXISTS (
    SELECT FROM pg_class c
    WHERE c.oid IN (SELECT relid FROM pg_partition_ancestors(%(oid)s)) AND c.relreplident <> 'f'
      AND (EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid)
           OR EXISTS (SELECT FROM pg_publication_namespace n WHERE n.pnpubid = p.oid AND n.pnnspid = c.relnamespace))))
  AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = %(oid)s AND c.relreplident = 'f')
ORDER BY 1;

-- name: managed_relatives
-- A registered table above or below this one.
SELECT DISTINCT t.relation::text
FROM frostline.tables t
WHERE t.relation <> %(oid)s::regclass
  AND (t.relation IN (SELECT relid FROM pg_partition_ancestors(%(oid)s))
       OR t.relation IN (SELECT relid FROM pg_partition_tree(%(oid)s)));

-- name: inherited_keys
-- Keys of a table above, which a branch cannot get rid of by itself. (A foreign key to a partitioned table has a row
-- per partition of that, all of the same table.)
SELECT c.conname
FROM pg_constraint c JOIN pg_constraint up ON up.oid = c.conparentid
WHERE c.conrelid = %(oid)s AND c.contype IN ('p', 'u', 'f', 'x') AND up.conrelid <> c.conrelid
ORDER BY 1;

-- name: other_encoding
SELECT pg_encoding_to_char(encoding) FROM pg_database
WHERE datname = current_database() AND pg_encoding_to_char(encoding) <> 'UTF8';

-- name: temporary
SELECT oid::regclass::text FROM pg_class WHERE oid = %(oid)s AND relpersistence = 't';

-- name: unlogged
-- Of a partitioned table only the partitions decide, and what was declared cannot be changed: before 18 SET LOGGED
-- succeeds and does nothing, and 18 knows neither.
SELECT oid::regclass::text FROM pg_class WHERE oid = %(oid)s AND relpersistence = 'u' AND relkind <> 'p';

-- name: declared_unlogged
SELECT oid::regclass::text FROM pg_class WHERE oid = %(oid)s AND relpersistence = 'u' AND relkind = 'p';

-- name: unlogged_sequences
-- Of identity and serial columns: made UNLOGGED with the table, and left so when its partitions are not.
SELECT DISTINCT s.oid::regclass::text
FROM pg_depend d JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S' AND s.relpersistence = 'u'
WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = %(oid)s
  AND d.deptype IN ('a', 'i')
ORDER BY 1;

-- name: unlogged_referents
-- The hot partition is logged, and may refer to logged tables only.
SELECT DISTINCT r.oid::regclass::text
FROM pg_constraint c JOIN pg_class r ON r.oid = c.confrelid AND r.relpersistence = 'u'
WHERE c.conrelid = %(oid)s AND c.contype = 'f'
ORDER BY 1;

-- name: period_references
-- FOREIGN KEY (..., PERIOD ...), since 18.
SELECT c.conname FROM pg_constraint c
WHERE c.conrelid = %(oid)s AND c.contype = 'f' AND (to_jsonb(c) ->> 'conperiod')::bool
ORDER BY 1;

-- name: of_type
SELECT reloftype::regtype::text FROM pg_class WHERE oid = %(oid)s AND reloftype <> 0;

-- name: half_detached
SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %(oid)s AND inhdetachpending;

-- name: invalid_indexes
SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %(oid)s AND NOT indisvalid;

-- name: forced_policies
-- Partitions whose policies would hide rows from us.
SELECT c.oid::regclass::text
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = %(oid)s AND c.relrowsecurity AND c.relforcerowsecurity
  AND NOT (SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user);

-- name: foreign_leaves
-- Partitions that we may not move: of an owner whose member we are not.
SELECT c.oid::regclass::text
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
WHERE i.inhparent = %(oid)s AND NOT pg_has_role(c.relowner, 'USAGE');

-- name: unreferenceable
-- Referenced tables that we may not refer to.
SELECT DISTINCT confrelid::regclass::text
FROM pg_constraint
WHERE conrelid = %(oid)s AND contype = 'f' AND conparentid = 0 AND NOT has_table_privilege(confrelid, 'REFERENCES');

-- name: unguardable
-- Referenced tables on which we may not have a trigger, or that we may not read.
SELECT DISTINCT confrelid::regclass::text
FROM pg_constraint
WHERE conrelid = %(oid)s AND contype = 'f' AND conparentid = 0
  AND NOT (has_table_privilege(confrelid, 'TRIGGER') AND has_table_privilege(confrelid, 'SELECT'));

-- name: on_leaves
-- What stands on single partitions only, and so goes with them when they are archived.
SELECT x.what FROM (
    SELECT c.oid::regclass || ': trigger ' || t.tgname AS what
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    JOIN pg_trigger t ON t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgparentid = 0
    WHERE i.inhparent = %(oid)s
    UNION ALL
    SELECT c.oid::regclass || ': constraint ' || k.conname
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    JOIN pg_constraint k ON k.conrelid = c.oid AND k.conparentid = 0 AND k.coninhcount = 0
                        AND k.contype IN ('c', 'u', 'f', 'x') AND k.conname <> ALL (%(own)s::text[])
    WHERE i.inhparent = %(oid)s
    UNION ALL
    SELECT c.oid::regclass || ': unique index ' || ic.relname
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    JOIN pg_index x ON x.indrelid = c.oid AND x.indisunique
    JOIN pg_class ic ON ic.oid = x.indexrelid AND NOT ic.relispartition
    WHERE i.inhparent = %(oid)s AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = ic.oid)
    UNION ALL
    SELECT c.oid::regclass || ': policy ' || p.polname
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    JOIN pg_policy p ON p.polrelid = c.oid
    WHERE i.inhparent = %(oid)s
) x
ORDER BY 1;

-- name: identity_by_index
-- The index that is the table's replica identity; it goes to the hot partition with the primary key.
SELECT x.indexrelid::regclass::text
FROM pg_index x JOIN pg_class c ON c.oid = x.indrelid
WHERE x.indrelid = %(oid)s AND c.relreplident = 'i' AND x.indisreplident;

-- name: partman
-- Where pg_partman keeps its list of tables.
SELECT c.oid::regclass::text
FROM pg_extension e JOIN pg_class c ON c.relnamespace = e.extnamespace AND c.relname = 'part_config'
WHERE e.extname = 'pg_partman';

-- name: enum_columns
SELECT a.attname
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND t.typtype = 'e';

-- name: inbound_foreign_keys
-- Foreign keys that point here, or at a table above; of a partitioned referencing table only the topmost.
SELECT c.conrelid::regclass::text || '.' || c.conname
FROM pg_constraint c LEFT JOIN pg_constraint up ON up.oid = c.conparentid
WHERE c.confrelid = %(oid)s AND c.contype = 'f' AND up.confrelid IS DISTINCT FROM c.confrelid
ORDER BY 1;

-- name: secondary_unique
SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = %(oid)s AND indisunique AND NOT indisprimary;

-- name: exclusions
-- Keys WITHOUT OVERLAPS (since 18) are such too.
SELECT conname FROM pg_constraint k
WHERE conrelid = %(oid)s AND (contype = 'x' OR coalesce((to_jsonb(k) ->> 'conperiod')::bool, false) AND contype IN ('p', 'u'));

-- name: depend_on_primary_key
-- A view, rule or function that groups by the primary key (or names it in ON CONFLICT) depends on the constraint.
SELECT DISTINCT CASE WHEN r.oid IS NOT NULL THEN r.ev_class::regclass::text
                     ELSE pg_describe_object(d.classid, d.objid, d.objsubid) END
FROM pg_constraint c
JOIN pg_depend d ON d.refclassid = 'pg_constraint'::regclass AND d.refobjid = c.oid
                AND d.classid IN ('pg_rewrite'::regclass, 'pg_proc'::regclass, 'pg_policy'::regclass)
LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
WHERE c.conrelid = %(oid)s AND c.contype = 'p'
ORDER BY 1;

-- name: deferrable_key
SELECT conname FROM pg_constraint WHERE conrelid = %(oid)s AND contype = 'p' AND condeferrable;

-- name: not_valid
-- Since 18 a constraint may be NOT ENFORCED, and then it never is valid.
SELECT conname
FROM pg_constraint c
WHERE conrelid = %(oid)s AND NOT convalidated AND coalesce((to_jsonb(c) ->> 'conenforced')::bool, true)
ORDER BY 1;

-- name: foreign_keys
SELECT conname FROM pg_constraint WHERE conrelid = %(oid)s AND contype = 'f' AND conparentid = 0 ORDER BY 1;

-- name: state_of_leaf
-- What must not change while a leaf is archived: who it is, its file, its capture triggers (A: fire always), the table's
-- shape, the leaf's bounds, where its changes are noted, and how often one was not. By whom each was left as it is (xmin) is part
-- of it, for it may have been altered, or detached, and be as it was again. Not so of pg_class, which every GRANT writes to.
SELECT c.oid, pg_relation_filenode(c.oid), c.relrowsecurity,
       ARRAY(SELECT tgname || ' ' || tgenabled::text || ' ' || xmin::text FROM pg_trigger
             WHERE tgrelid = c.oid AND tgname LIKE '!frostline%%' ORDER BY 1),
       frostline.shape(%(table)s), pg_get_expr(c.relpartbound, c.oid),
       (SELECT last_value + is_called::int FROM frostline.missed),
       (SELECT i.xmin::text FROM pg_inherits i WHERE i.inhrelid = c.oid),
       ARRAY(SELECT a.xmin::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 ORDER BY a.attnum),
       pg_relation_filenode(to_regclass('frostline_delta.touched_' || %(table)s || '_keys'))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relname = %(name)s;

-- name: constraint_triggers
SELECT tgname FROM pg_trigger WHERE tgrelid = %(oid)s AND NOT tgisinternal AND tgconstraint <> 0;

-- name: transition_triggers
SELECT tgname
FROM pg_trigger
WHERE tgrelid = %(oid)s AND NOT tgisinternal AND (tgoldtable IS NOT NULL OR tgnewtable IS NOT NULL);

-- name: subscriptions
-- Those that write into the table, a table above it or one of its partitions.
SELECT DISTINCT s.subname
FROM pg_subscription_rel r JOIN pg_subscription s ON s.oid = r.srsubid
WHERE r.srrelid IN (SELECT relid FROM pg_partition_ancestors(%(oid)s) UNION SELECT relid FROM pg_partition_tree(%(oid)s))
ORDER BY 1;

-- name: foreign_owner
-- The owner, when the role we are is not a member of it.
SELECT relowner::regrole::text FROM pg_class WHERE oid = %(oid)s AND NOT pg_has_role(relowner, 'USAGE');

-- name: closed_schema
-- The table's schema, when we may not create relations in it.
SELECT quote_ident(n.nspname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = %(oid)s AND NOT (has_schema_privilege(n.oid, 'CREATE') AND has_schema_privilege(n.oid, 'USAGE'));

-- name: closed_to_owner
-- The same of its owner, to whom what we make there is given: only a superuser may give it to somebody who could not make it.
SELECT quote_ident(n.nspname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_roles r ON r.rolname = current_user
WHERE c.oid = %(oid)s AND NOT has_schema_privilege(c.relowner, n.oid, 'CREATE') AND NOT r.rolsuper;

-- name: roles_concerned
-- Who we are, the table's owner, and the owners of partitions whose member we are not, as SQL wants them.
SELECT quote_ident(current_user), t.relowner::regrole::text,
       (SELECT string_agg(DISTINCT c.relowner::regrole::text, ', ') FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = t.oid AND NOT pg_has_role(c.relowner, 'USAGE'))
FROM pg_class t WHERE t.oid = %(oid)s;

-- name: dependents
-- Views and foreign keys that refer to one relation itself.
SELECT DISTINCT r.ev_class::regclass::text
FROM pg_depend d JOIN pg_rewrite r ON r.oid = d.objid
WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = %(oid)s
UNION
SELECT conrelid::regclass::text FROM pg_constraint WHERE confrelid = %(oid)s AND contype = 'f';

-- name: grants
-- Grants on one relation to others than its owner; regrole prints a name as SQL wants it.
SELECT CASE WHEN a.grantee <> 0 THEN a.grantee::regrole::text ELSE 'PUBLIC' END, a.privilege_type, a.is_grantable, NULL
FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
WHERE c.oid = %(oid)s AND a.grantee <> c.relowner
  AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRIGGER')
UNION ALL
SELECT CASE WHEN a.grantee <> 0 THEN a.grantee::regrole::text ELSE 'PUBLIC' END, a.privilege_type, a.is_grantable,
       t.attname
FROM pg_class c
JOIN pg_attribute t ON t.attrelid = c.oid AND t.attnum > 0 AND NOT t.attisdropped
CROSS JOIN LATERAL aclexplode(t.attacl) a
WHERE c.oid = %(oid)s AND a.grantee <> c.relowner AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE');

-- name: default_grantees
-- Whoever ALTER DEFAULT PRIVILEGES gives something on every table that we create in a schema.
SELECT DISTINCT CASE WHEN a.grantee <> 0 THEN a.grantee::regrole::text ELSE 'PUBLIC' END
FROM pg_default_acl d CROSS JOIN LATERAL aclexplode(d.defaclacl) a
WHERE d.defaclobjtype = 'r' AND d.defaclrole = (SELECT oid FROM pg_roles WHERE rolname = current_user)
  AND a.grantee <> d.defaclrole
  AND (d.defaclnamespace = 0 OR d.defaclnamespace = (SELECT oid FROM pg_namespace WHERE nspname = %(schema)s));

-- name: operations
SELECT id::text FROM frostline.operations WHERE table_id = %(table)s;

-- name: noted
-- Iceberg snapshots that operations made on their way and did not live to record.
SELECT unnest(noted) FROM frostline.operations WHERE table_id = %(table)s AND state <> 'done';

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

-- name: outdated_periods
-- Foreign partitions of which more than a tenth has changed since the planner was told; a few rows are never worth it.
SELECT n.nspname, c.relname, p.upper, p.changed
FROM frostline.periods p
JOIN pg_class c ON c.oid = p.foreign_table
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.table_id = %(table)s AND p.changed > 50 AND p.changed > greatest(p.rows, c.reltuples) / 10;

-- name: at_work
-- Whether a run has the table's lock in the lake.
SELECT FROM pg_locks l
WHERE l.locktype = 'advisory' AND l.classid = %(writer)s::oid AND l.objid = %(table)s::oid AND l.objsubid = 2 AND l.granted
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.pid <> pg_backend_pid();

-- name: holders
-- Sessions whose locks conflict with ours on any of these relations; `written`: where ours lets readers be; `fenced`:
-- cold writers of a table. When a transaction began is hidden from a role without pg_read_all_stats, and so is
-- the state: that one may stay, as a prepared one does. Others without a beginning have ended since their lock was seen.
SELECT l.pid, to_char(a.xact_start, 'YYYY-MM-DD HH24:MI:SSOF'),
       coalesce(extract(epoch FROM clock_timestamp() - a.xact_start),
                CASE WHEN l.pid IS NULL OR a.pid IS NOT NULL AND a.state IS NULL THEN 1e9 ELSE 0 END)::float8 AS age,
       coalesce(a.state, CASE WHEN l.pid IS NULL THEN 'prepared transaction' ELSE a.backend_type END, '?'),
       coalesce(l.relation::regclass::text, 'the fence of cold writers'), l.mode, coalesce(left(a.query, 200), '')
FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.granted
  AND (l.locktype = 'relation' AND l.relation = ANY (%(relations)s::oid[])
       OR l.locktype = 'relation' AND l.relation = ANY (%(written)s::oid[])
          AND l.mode NOT IN ('AccessShareLock', 'RowShareLock')
       OR l.locktype = 'advisory' AND l.classid = %(fence)s::oid AND l.objid = %(fenced)s::oid AND l.objsubid = 2)
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND l.pid IS DISTINCT FROM pg_backend_pid()
ORDER BY age DESC, l.pid, l.relation;

-- name: referenced
-- Tables that foreign keys of these relations point to: detaching a partition locks them.
SELECT DISTINCT n.nspname, c.relname, c.oid
FROM pg_constraint k JOIN pg_class c ON c.oid = k.confrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE k.contype = 'f' AND k.conrelid = ANY (%(relations)s::oid[])
ORDER BY 1, 2;

-- name: lockable_referents
-- Those of them that we may lock before all else, so that nobody who deletes there waits for us with what we wait for.
-- LOCK TABLE needs a privilege to write, which REFERENCES and TRIGGER on the table of another owner are not; the
-- statements that come afterwards lock it then, a little later.
SELECT DISTINCT n.nspname, c.relname, c.oid
FROM pg_constraint k JOIN pg_class c ON c.oid = k.confrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE k.contype = 'f' AND k.conrelid = ANY (%(relations)s::oid[])
  AND has_table_privilege(c.oid, 'UPDATE, DELETE, TRUNCATE')
ORDER BY 1, 2;

-- name: unfinished
-- Operations whose run ended before they did: where they stand, and whether the swap was made.
SELECT o.id, o.leaf, o.lower, o.upper, o.state, o.captured, o.snapshot_id,
       coalesce((SELECT s.name FROM frostline.steps s WHERE s.operation_id = o.id ORDER BY s.number DESC LIMIT 1),
                'its beginning') AS step,
       p.foreign_table::oid AS foreign_table, to_regclass('frostline_delta.dropped_' || o.id) IS NOT NULL AS parked,
       coalesce((SELECT s.attempts FROM frostline.steps s
                 WHERE s.operation_id = o.id AND s.name = 'verify' AND s.finished_at IS NULL), 0) AS tries
FROM frostline.operations o LEFT JOIN frostline.periods p ON p.operation_id = o.id
WHERE o.table_id = %(table)s AND o.kind = 'archive'
  AND (o.state = 'running' OR o.captured IS NOT NULL AND o.state <> 'done'
       OR to_regclass('frostline_delta.dropped_' || o.id) IS NOT NULL)
ORDER BY o.id;

-- name: unfinished_folds
-- Folds whose run ended before they did.
SELECT o.id, o.folded IS NOT NULL, o.snapshot_id
FROM frostline.operations o
WHERE o.table_id = %(table)s AND o.kind = 'fold' AND (o.state = 'running' OR o.folded IS NOT NULL)
ORDER BY o.id;

-- name: unfinished_maintenance
-- Maintenance whose run ended before it did, or failed: surely when its commits were made, or maybe.
SELECT o.id, o.state = 'running' OR o.snapshot_id IS NOT NULL
FROM frostline.operations o
WHERE o.table_id = %(table)s AND o.kind = 'maintain'
  AND (o.state = 'running' OR o.state = 'failed' AND (o.snapshot_id IS NOT NULL OR o.noted IS NOT NULL))
ORDER BY o.id;

-- name: ages
-- Seconds since every operation was done.
SELECT o.id::text, extract(epoch FROM clock_timestamp() - o.finished_at)::float8
FROM frostline.operations o
WHERE o.table_id = %(table)s AND o.state = 'done' AND o.finished_at IS NOT NULL;

-- name: last_fold
-- Seconds since a table was folded, or registered.
SELECT extract(epoch FROM clock_timestamp() - coalesce(max(o.finished_at), t.registered_at))::float8
FROM frostline.tables t
LEFT JOIN frostline.operations o ON o.table_id = t.id AND o.kind = 'fold' AND o.state = 'done'
WHERE t.id = %(table)s
GROUP BY t.id;

-- name: alarms
SELECT a.period, a.alarm, a.found_by
FROM frostline.alarms a JOIN frostline.tables t ON t.relation::text = a."table"
WHERE t.id = %(table)s;

-- name: captured_relations
-- Relations that carry triggers of a table's capture, wherever they are now.
SELECT DISTINCT c.oid, n.nspname, c.relname
FROM pg_trigger t
JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_proc f ON f.oid = t.tgfoid
WHERE f.pronamespace = 'frostline_delta'::regnamespace AND f.proname = ANY (%(functions)s::text[])
ORDER BY 1;

-- name: types_within
-- Every built-in type in a table's columns, however deep: under domains, and inside arrays, composites and ranges.
WITH RECURSIVE part (attname, typid, inside) AS (
    SELECT a.attname, a.atttypid, false
    FROM pg_attribute a
    WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped
    UNION
    SELECT p.attname, x.typid, p.inside OR t.typtype <> 'd'
    FROM part p
    JOIN pg_type t ON t.oid = p.typid
    CROSS JOIN LATERAL (
        SELECT t.typbasetype WHERE t.typtype = 'd'
        UNION ALL
        SELECT t.typelem WHERE t.typsubscript = 'array_subscript_handler'::regproc
        UNION ALL
        SELECT c.atttypid FROM pg_attribute c
        WHERE t.typtype = 'c' AND c.attrelid = t.typrelid AND c.attnum > 0 AND NOT c.attisdropped
        UNION ALL
        SELECT r.rngsubtype FROM pg_range r WHERE t.oid IN (r.rngtypid, r.rngmultitypid)
    ) x (typid)
)
SELECT DISTINCT p.attname, t.typname, p.inside
FROM part p
JOIN pg_type t ON t.oid = p.typid AND t.typnamespace = 'pg_catalog'::regnamespace
ORDER BY 1, 2, 3;

-- name: metadata_in_use
SELECT metadata_location FROM frostline.tables WHERE id = %(table)s AND metadata_location IS NOT NULL
UNION
SELECT metadata_location FROM frostline.operations WHERE table_id = %(table)s AND metadata_location IS NOT NULL
UNION
SELECT metadata_location FROM frostline.pins WHERE table_id = %(table)s;

-- name: periods
-- The foreign partitions of a table and what was recorded of them.
SELECT n.nspname, c.relname, p.lower, p.upper, p.rows, p.digest
FROM frostline.periods p
JOIN pg_class c ON c.oid = p.foreign_table
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.table_id = %(table)s;

-- name: on_its_way
-- The operation that moves a leaf right now, and its step.
SELECT o.id, coalesce((SELECT s.name FROM frostline.steps s WHERE s.operation_id = o.id ORDER BY s.number DESC LIMIT 1),
                      'its begin')
FROM frostline.operations o
WHERE o.table_id = %(table)s AND o.leaf = %(leaf)s AND o.state = 'running'
ORDER BY o.id DESC
LIMIT 1;

-- name: parts
-- Foreign partitions that have a lower bound, with all that is recorded of them; not those that somebody has detached.
SELECT c.oid, n.nspname, c.relname, p.lower, p.upper, p.rows, p.bytes, p.files, p.digest, p.alarm
FROM frostline.periods p
JOIN pg_class c ON c.oid = p.foreign_table
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.table_id = %(table)s AND p.lower IS NOT NULL AND c.relispartition;

-- name: oldest_part
-- The foreign partition without a lower bound.
SELECT c.oid, n.nspname, c.relname
FROM frostline.periods p
JOIN pg_class c ON c.oid = p.foreign_table
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.table_id = %(table)s AND p.lower IS NULL;

-- name: foreign_key_checks
-- Outbound foreign keys as a constraint on another table would be written; since 18 some are not enforced.
SELECT c.conname, ARRAY(SELECT a.attname::text FROM unnest(c.conkey) WITH ORDINALITY k(attnum, place)
                        JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.attnum ORDER BY k.place),
       n.nspname, r.relname,
       ARRAY(SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY k(attnum, place)
             JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = k.attnum ORDER BY k.place),
       c.confmatchtype = 'f'
FROM pg_constraint c
JOIN pg_class r ON r.oid = c.confrelid
JOIN pg_namespace n ON n.oid = r.relnamespace
WHERE c.conrelid = %(oid)s AND c.contype = 'f' AND c.conparentid = 0
  AND coalesce((to_jsonb(c) ->> 'conenforced')::bool, true)
ORDER BY c.conname;

-- name: fdw_connections
-- Where postgres_fdw's functions are, and whether they tell if a connection is in use in this transaction (since 18).
SELECT n.nspname, coalesce('used_in_xact' = ANY (p.proargnames), false)
FROM pg_proc p
JOIN pg_depend d ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid AND d.refclassid = 'pg_extension'::regclass
JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'postgres_fdw'
JOIN pg_namespace n ON n.oid = p.pronamespace
WHERE p.proname = 'postgres_fdw_get_connections'
ORDER BY 2 DESC
LIMIT 1;

-- name: unequipped
-- Registered tables without the function that stores cold writes as this version does (an older one made it), or without the
-- trigger that row-level security needs (it was enabled since): these are out of date. So that a session asks the gateway no more than it
-- has to, also those whose function was made for a postgres_fdw that told less, or more, than the one that is here.
WITH found AS (
    SELECT t.id,
           obj_description(to_regprocedure('frostline.store_' || t.id || '(oid, bool)'), 'pg_proc') IS DISTINCT FROM %(version)s
           OR EXISTS (
                SELECT FROM pg_partition_ancestors(t.relation) a JOIN pg_class r ON r.oid = a.relid
                WHERE r.relrowsecurity AND NOT EXISTS (
                    SELECT FROM pg_trigger g JOIN pg_proc f ON f.oid = g.tgfoid
                    WHERE g.tgrelid = r.oid AND g.tgnargs > 0 AND g.tgenabled = 'A' AND f.proname = 'collect_' || t.id
                      AND f.pronamespace = 'frostline'::regnamespace)) AS outdated,
           (SELECT f.prosrc LIKE '%%used_in_xact%%' FROM pg_proc f
            WHERE f.oid = to_regprocedure('frostline.collect_' || t.id || '()')) IS DISTINCT FROM %(tells)s AS otherwise
    FROM frostline.tables t JOIN pg_class c ON c.oid = t.relation
)
SELECT id, outdated FROM found WHERE outdated OR otherwise;

-- name: foreign_partitions
SELECT n.nspname, c.relname
FROM frostline.periods p JOIN pg_class c ON c.oid = p.foreign_table JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.table_id = %(table)s AND c.relispartition;

-- name: foreign_bounds
SELECT n.nspname, c.relname, pg_get_expr(c.relpartbound, c.oid)
FROM frostline.periods p JOIN pg_class c ON c.oid = p.foreign_table JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.table_id = %(table)s AND c.relispartition
ORDER BY p.lower NULLS FIRST, c.oid;

-- name: assignable
-- Whether ALTER TYPE needs no USING; of arrays it is that of their elements. Anything can be assigned to a text.
SELECT s.oid = t.oid OR t.typcategory = 'S'
       OR EXISTS (SELECT FROM pg_cast c WHERE c.castsource = s.oid AND c.casttarget = t.oid AND c.castcontext <> 'e')
FROM pg_type a, pg_type b, pg_type s, pg_type t
WHERE a.oid = %(source)s AND b.oid = %(target)s
  AND s.oid = CASE WHEN a.typcategory = 'A' AND b.typcategory = 'A' THEN a.typelem ELSE a.oid END
  AND t.oid = CASE WHEN a.typcategory = 'A' AND b.typcategory = 'A' THEN b.typelem ELSE b.oid END;

-- name: ancestors
-- This table and the partitioned ones above it: whether it is above, and has row-level security.
SELECT n.nspname, c.relname, c.oid <> %(oid)s, c.relrowsecurity
FROM pg_partition_ancestors(%(oid)s) a
JOIN pg_class c ON c.oid = a.relid
JOIN pg_namespace n ON n.oid = c.relnamespace;

-- name: strays
-- What belongs to a table and is no partition of it any more: the hot partition, cold periods. No name: it was dropped.
SELECT w.oid, n.nspname, c.relname, coalesce(w.lower, 'MINVALUE'), coalesce(w.upper, 'MAXVALUE')
FROM frostline.tables t
CROSS JOIN LATERAL (
    SELECT t.hot::oid AS oid, t.seam AS lower, NULL AS upper
    UNION ALL SELECT p.foreign_table::oid, p.lower, p.upper FROM frostline.periods p WHERE p.table_id = t.id
) w
LEFT JOIN pg_class c ON c.oid = w.oid
LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE t.id = %(table)s
  AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = w.oid AND i.inhparent = t.relation AND NOT i.inhdetachpending)
ORDER BY w.upper, w.oid;

-- name: cold_periods
-- The foreign partitions of a table with their OIDs and sizes.
SELECT c.oid, n.nspname, c.relname, p.lower, p.upper, p.rows, p.bytes
FROM frostline.periods p
JOIN pg_class c ON c.oid = p.foreign_table
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.table_id = %(table)s;

-- name: indexes
-- Indexes of a relation that belong to no constraint: what CREATE INDEX ON another one says after its name.
SELECT s.spcname, x.indisunique,
       substr(pg_get_indexdef(c.oid), length(format('CREATE %%sINDEX %%I ON ONLY %%I.%%I ',
              CASE WHEN x.indisunique THEN 'UNIQUE ' ELSE '' END, c.relname, n.nspname, t.relname)) + 1)
FROM pg_index x
JOIN pg_class c ON c.oid = x.indexrelid
JOIN pg_class t ON t.oid = x.indrelid
JOIN pg_namespace n ON n.oid = t.relnamespace
LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace
WHERE x.indrelid = %(oid)s AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = c.oid AND k.contype IN ('p', 'u', 'x'))
ORDER BY c.oid;

-- name: unfinished_untiers
-- Operations that bring a period back and whose run ended before they did, or left their trigger; with the leaf they
-- made, and whether every change of the period is written to it as well.
SELECT o.id, o.leaf, o.lower, o.upper, l.oid, n.nspname, l.relname,
       EXISTS (SELECT FROM pg_trigger g WHERE g.tgrelid = t.delta AND g.tgname = '!frostline follow ' || o.id
                                          AND g.tgenabled = 'A') AS followed,
       o.loaded IS NOT NULL AND o.loaded_from IS NOT DISTINCT FROM t.snapshot_id AS current, o.state = 'done' AS done
FROM frostline.operations o
JOIN frostline.tables t ON t.id = o.table_id
LEFT JOIN pg_namespace n ON n.nspname = 'frostline_untier_' || o.id
LEFT JOIN pg_class l ON l.relnamespace = n.oid AND l.relkind = 'r'
WHERE o.table_id = %(table)s AND o.kind = 'untier'
  AND (o.state = 'running' OR n.oid IS NOT NULL OR to_regprocedure('frostline_delta.follow_' || o.id || '()') IS NOT NULL)
ORDER BY o.id;

-- name: otherwise
-- Whether a leaf that waits has another default or expression than the table, or a CHECK or NOT NULL that is gone. What it
-- lacks Postgres asks for itself, when it is attached.
SELECT EXISTS (
    SELECT FROM pg_attribute l
    JOIN pg_attribute t ON t.attrelid = %(table)s AND t.attname = l.attname AND NOT t.attisdropped
    JOIN pg_attribute h ON h.attrelid = %(hot)s AND h.attname = l.attname AND NOT h.attisdropped
    LEFT JOIN pg_attrdef ld ON ld.adrelid = l.attrelid AND ld.adnum = l.attnum
    LEFT JOIN pg_attrdef td ON td.adrelid = t.attrelid AND td.adnum = t.attnum
    WHERE l.attrelid = %(leaf)s AND l.attnum > 0 AND NOT l.attisdropped
      AND (pg_get_expr(ld.adbin, ld.adrelid) IS DISTINCT FROM pg_get_expr(td.adbin, td.adrelid)
           OR l.attnotnull AND NOT h.attnotnull)
) OR EXISTS (
    SELECT FROM pg_constraint l
    WHERE l.conrelid = %(leaf)s AND l.contype = 'c' AND l.conname <> ALL (%(own)s::text[])
      AND NOT EXISTS (SELECT FROM pg_constraint h WHERE h.conrelid = %(hot)s AND h.contype = 'c' AND h.conname = l.conname)
);

-- name: unfinished_trims
SELECT o.id FROM frostline.operations o
WHERE o.table_id = %(table)s AND o.kind = 'trim' AND o.state = 'running' ORDER BY o.id;

-- name: unfinished_appends
SELECT o.id, o.snapshot_id FROM frostline.operations o
WHERE o.table_id = %(table)s AND o.kind = 'append' AND o.state = 'running' ORDER BY o.id;

-- name: leaf_of_untier
SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %(schema)s AND c.relkind = 'r';

-- name: own_triggers
-- Triggers that call a function of one registered table, wherever they are, those on referenced tables included.
SELECT n.nspname, c.relname, t.tgname, c.oid
FROM pg_trigger t
JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_proc f ON f.oid = t.tgfoid
WHERE NOT t.tgisinternal AND t.tgparentid = 0
  AND (f.pronamespace IN ('frostline'::regnamespace, 'frostline_delta'::regnamespace)
           AND f.proname = ANY (%(functions)s::text[])
       OR f.pronamespace = 'frostline'::regnamespace AND f.proname = 'keep_cold_references'
           AND split_part(encode(t.tgargs, 'escape'), '\000', 1) = %(table)s::text)
ORDER BY c.oid, t.tgname;

-- name: own_functions
SELECT f.oid::regprocedure::text FROM pg_proc f
WHERE f.pronamespace IN ('frostline'::regnamespace, 'frostline_delta'::regnamespace)
  AND f.proname = ANY (%(functions)s::text[]);

-- name: own_relations
-- What stands in the schema of changes for one registered table beside its delta.
SELECT c.relname, c.relkind::text FROM pg_class c
WHERE c.relnamespace = 'frostline_delta'::regnamespace AND c.relkind IN ('r', 'f')
  AND (c.relname IN ('held_' || %(table)s, 'shape_' || %(table)s, 'touched_' || %(table)s || '_keys')
       OR c.oid IN (SELECT p.passing FROM frostline.passing_tables(%(table)s) p));

-- name: identity_defaults
-- Defaults of leaves that stand in for an identity column, before partitions shared the table's (17).
SELECT n.nspname, c.relname, a.attname
FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = c.oid AND a.atthasdef AND a.attidentity = '' AND a.attgenerated = ''
WHERE i.inhparent = %(oid)s AND c.relkind = 'r' AND a.attname = ANY (%(columns)s::text[]);

-- name: columns_without_number
-- Columns of the lake whose number no column of the table has or had; 0 is of the lake's own.
SELECT coalesce(c.lake_name, c.attnum::text)
FROM frostline.columns c JOIN frostline.tables t ON t.id = c.table_id
WHERE t.id = %(table)s AND c.attnum > 0
  AND NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = t.relation AND a.attnum = c.attnum)
ORDER BY c.attnum;

-- name: columns_renamed_before_the_dump
-- Of a table that was made from a dump, with none of the hot partitions that were recorded last: columns that go by other
-- names than they were recorded by. A dump numbers columns anew, so one may stand where another was dropped.
SELECT a.attname, c.delta_name
FROM frostline.columns c
JOIN frostline.tables t ON t.id = c.table_id
JOIN pg_attribute a ON a.attrelid = t.relation AND a.attnum = c.attnum AND NOT a.attisdropped
WHERE t.id = %(table)s AND c.attnum > 0 AND a.attname <> c.delta_name
  AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = t.hot AND t.heaps ? i.inhrelid::oid::text)
ORDER BY c.attnum;
