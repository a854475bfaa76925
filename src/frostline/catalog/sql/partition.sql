-- Queries of `frostline partition`: all that a plain table has and a partitioned one is to have too.

-- name: plain_table
SELECT r.rolname, obj_description(c.oid, 'pg_class'), c.reloptions, t.reloptions, s.spcname, a.amname,
       c.relreplident::text, c.relrowsecurity, c.relforcerowsecurity
FROM pg_class c
JOIN pg_roles r ON r.oid = c.relowner
LEFT JOIN pg_class t ON t.oid = c.reltoastrelid
LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace
LEFT JOIN pg_am a ON a.oid = c.relam
WHERE c.oid = %(oid)s;

-- name: plain_columns
-- With all that could be changed about a column meanwhile.
SELECT a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated::text, a.attidentity::text,
       pg_get_expr(d.adbin, d.adrelid), a.attcollation::regcollation::text, a.attstorage::text, a.attcompression::text,
       nullif(coalesce(a.attstattarget, -1), -1)::int, a.attoptions, col_description(a.attrelid, a.attnum)
FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = %(oid)s AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum;

-- name: plain_indexes
-- Definitions without the names in front; the primary key is none of them.
SELECT i.relname, x.indisunique,
       substr(pg_get_indexdef(i.oid), length('CREATE ' || CASE WHEN x.indisunique THEN 'UNIQUE ' ELSE '' END || 'INDEX '
              || quote_ident(i.relname) || ' ON ' || quote_ident(n.nspname) || '.' || quote_ident(c.relname) || ' ') + 1)
       || coalesce(' TABLESPACE ' || quote_ident(s.spcname), ''),
       obj_description(i.oid, 'pg_class'),
       -- Of a UNIQUE constraint, which may be named in ON CONFLICT.
       pg_get_constraintdef(k.oid) || coalesce(' WITH (' || array_to_string(i.reloptions, ', ') || ')', '')
       || coalesce(' USING INDEX TABLESPACE ' || quote_ident(s.spcname), ''),
       obj_description(k.oid, 'pg_constraint')
FROM pg_index x
JOIN pg_class i ON i.oid = x.indexrelid
JOIN pg_class c ON c.oid = x.indrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_tablespace s ON s.oid = i.reltablespace
LEFT JOIN pg_constraint k ON k.conindid = i.oid AND k.conrelid = x.indrelid AND k.contype IN ('u', 'x')
WHERE x.indrelid = %(oid)s AND NOT x.indisprimary
ORDER BY i.relname;

-- name: plain_primary_key
SELECT k.conname, i.reloptions, s.spcname, obj_description(k.oid, 'pg_constraint'), obj_description(i.oid, 'pg_class'),
       ARRAY(SELECT a.attname::text FROM pg_index x
             CROSS JOIN LATERAL unnest(x.indkey::int2[]) WITH ORDINALITY AS u (attnum, place)
             JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.attnum
             WHERE x.indexrelid = k.conindid AND u.place > x.indnkeyatts ORDER BY u.place)
FROM pg_constraint k JOIN pg_class i ON i.oid = k.conindid
LEFT JOIN pg_tablespace s ON s.oid = i.reltablespace
WHERE k.conrelid = %(oid)s AND k.contype = 'p';

-- name: plain_checks
SELECT k.conname, pg_get_constraintdef(k.oid), obj_description(k.oid, 'pg_constraint')
FROM pg_constraint k
WHERE k.conrelid = %(oid)s AND k.contype = 'c'
ORDER BY k.conname;

-- name: plain_foreign_keys
SELECT k.conname, pg_get_constraintdef(k.oid), obj_description(k.oid, 'pg_constraint')
FROM pg_constraint k
WHERE k.conrelid = %(oid)s AND k.contype = 'f' AND k.conparentid = 0
ORDER BY k.conname;

-- name: plain_triggers
SELECT t.tgname, pg_get_triggerdef(t.oid), t.tgenabled::text, obj_description(t.oid, 'pg_trigger')
FROM pg_trigger t
WHERE t.tgrelid = %(oid)s AND NOT t.tgisinternal AND t.tgname NOT LIKE '!frostline%%'
ORDER BY t.tgname;

-- name: plain_policies
SELECT p.polname, CASE WHEN p.polpermissive THEN 'PERMISSIVE' ELSE 'RESTRICTIVE' END,
       CASE p.polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END,
       (SELECT string_agg(CASE WHEN r = 0 THEN 'PUBLIC' ELSE r::regrole::text END, ', ' ORDER BY r) FROM unnest(p.polroles) r),
       pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid), obj_description(p.oid, 'pg_policy')
FROM pg_policy p
WHERE p.polrelid = %(oid)s
ORDER BY p.polname;

-- name: plain_statistics
SELECT n.nspname, s.stxname, pg_get_statisticsobjdef(s.oid), obj_description(s.oid, 'pg_statistic_ext'),
       nullif(coalesce(s.stxstattarget, -1), -1)::int
FROM pg_statistic_ext s JOIN pg_namespace n ON n.oid = s.stxnamespace
WHERE s.stxrelid = %(oid)s
ORDER BY 1, 2;

-- name: plain_publications
SELECT p.pubname,
       (SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute a
        WHERE a.attrelid = r.prrelid AND a.attnum = ANY (r.prattrs)),
       pg_get_expr(r.prqual, r.prrelid)
FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
WHERE r.prrelid = %(oid)s
ORDER BY 1;

-- name: plain_views
-- Views that read the table itself; one that reads such a view stays as it is.
SELECT DISTINCT n.nspname, v.relname, rtrim(pg_get_viewdef(v.oid), ';'), v.reloptions, v.relowner::regrole::text
FROM pg_depend d
JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
JOIN pg_class v ON v.oid = r.ev_class AND v.relkind = 'v' AND r.rulename = '_RETURN'
JOIN pg_namespace n ON n.oid = v.relnamespace
WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = %(oid)s
ORDER BY n.nspname, v.relname;

-- name: plain_sequences
-- Of serial columns (a: they can be given away) and identity columns (i: they are part of the column).
SELECT d.deptype::text, a.attname, n.nspname, s.relname, s.oid
FROM pg_depend d
JOIN pg_class s ON d.classid = 'pg_class'::regclass AND s.oid = d.objid AND s.relkind = 'S'
JOIN pg_namespace n ON n.oid = s.relnamespace
JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
WHERE d.refclassid = 'pg_class'::regclass AND d.refobjid = %(oid)s AND d.deptype IN ('a', 'i')
ORDER BY a.attnum;

-- name: sequence_options
SELECT format_type(s.seqtypid, NULL), s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle
FROM pg_sequence s WHERE s.seqrelid = %(oid)s;

-- name: all_grants
-- Every privilege on a relation that somebody else than its owner has; regrole prints a name as SQL wants it.
SELECT CASE WHEN a.grantee <> 0 THEN a.grantee::regrole::text ELSE 'PUBLIC' END, a.privilege_type, a.is_grantable,
       NULL::text AS attname
FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
WHERE c.oid = %(oid)s AND a.grantee <> c.relowner
UNION ALL
SELECT CASE WHEN a.grantee <> 0 THEN a.grantee::regrole::text ELSE 'PUBLIC' END, a.privilege_type, a.is_grantable, t.attname
FROM pg_class c
JOIN pg_attribute t ON t.attrelid = c.oid AND t.attnum > 0 AND NOT t.attisdropped
CROSS JOIN LATERAL aclexplode(t.attacl) a
WHERE c.oid = %(oid)s AND a.grantee <> c.relowner
ORDER BY 1, 2, 4;

-- name: no_plain_table
-- What keeps a relation from being a plain table that can be partitioned.
SELECT x.what FROM pg_class c CROSS JOIN LATERAL (VALUES
    (c.relkind = 'p', 'it is partitioned already'),
    (c.relkind NOT IN ('r', 'p'), 'it is no table'),
    (c.relispartition, 'it is a partition of another table'),
    (c.relpersistence <> 'p', 'it is temporary or UNLOGGED'),
    (c.reloftype <> 0, 'it is a typed table'),
    (EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid AND c.relkind = 'r'), 'other tables inherit from it'),
    (EXISTS (SELECT FROM pg_inherits WHERE inhrelid = c.oid AND NOT c.relispartition), 'it inherits from another table')
) x (so, what)
WHERE c.oid = %(oid)s AND x.so;

-- name: keys_without
-- UNIQUE indexes that do not hold the column a table is to be cut by.
SELECT i.relname
FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attname = %(column)s
WHERE x.indrelid = %(oid)s AND x.indisunique AND NOT x.indisprimary AND NOT a.attnum = ANY (x.indkey::int2[])
ORDER BY 1;

-- name: deferrable_keys
-- ON CONFLICT, by which rows are copied, takes no such constraint.
SELECT conname FROM pg_constraint WHERE conrelid = %(oid)s AND contype IN ('p', 'u') AND condeferrable ORDER BY conname;

-- name: forced_row_security
-- The role, when policies would hide rows from it.
SELECT current_user FROM pg_class c
WHERE c.oid = %(oid)s AND c.relrowsecurity AND c.relforcerowsecurity
  AND NOT (SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user);

-- name: no_inherit_checks
SELECT conname FROM pg_constraint WHERE conrelid = %(oid)s AND contype = 'c' AND connoinherit ORDER BY 1;

-- name: row_transition_triggers
SELECT tgname FROM pg_trigger
WHERE tgrelid = %(oid)s AND NOT tgisinternal AND tgtype & 1 = 1 AND (tgoldtable IS NOT NULL OR tgnewtable IS NOT NULL);

-- name: own_rules
SELECT rulename FROM pg_rewrite WHERE ev_class = %(oid)s ORDER BY 1;

-- name: identity_index
SELECT 'index' FROM pg_class WHERE oid = %(oid)s AND relreplident = 'i';

-- name: wide_publications
-- Those that would publish the copy itself, or partitions under their own names.
SELECT p.pubname
FROM pg_publication p
WHERE p.puballtables
   OR EXISTS (SELECT FROM pg_publication_namespace n JOIN pg_class c ON c.relnamespace = n.pnnspid
              WHERE n.pnpubid = p.oid AND c.oid = %(oid)s)
   OR NOT p.pubviaroot AND EXISTS (SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = %(oid)s)
ORDER BY 1;

-- name: own_subscriptions
SELECT DISTINCT s.subname FROM pg_subscription_rel r JOIN pg_subscription s ON s.oid = r.srsubid
WHERE r.srrelid = %(oid)s ORDER BY 1;

-- name: bound_to_it
-- What else knows the table by its OID, or its row type, and would go on with the old one.
SELECT DISTINCT CASE WHEN r.oid IS NOT NULL THEN pg_describe_object('pg_class'::regclass, r.ev_class, 0)
                     ELSE pg_describe_object(d.classid, d.objid, d.objsubid) END
FROM pg_class c
JOIN pg_type t ON t.oid = c.reltype
JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = c.oid
                 OR d.refclassid = 'pg_type'::regclass AND d.refobjid IN (t.oid, t.typarray)
LEFT JOIN pg_rewrite r ON d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid
LEFT JOIN pg_class v ON v.oid = r.ev_class
WHERE c.oid = %(oid)s AND d.deptype NOT IN ('i', 'P', 'S')
  AND NOT (d.refclassid = 'pg_class'::regclass AND (
       d.classid IN ('pg_attrdef'::regclass, 'pg_trigger'::regclass, 'pg_statistic_ext'::regclass,
                     'pg_publication_rel'::regclass, 'pg_constraint'::regclass)
       OR d.classid = 'pg_class'::regclass AND EXISTS (SELECT FROM pg_class o WHERE o.oid = d.objid AND o.relkind IN ('S', 'i', 't'))
       OR d.classid = 'pg_policy'::regclass AND EXISTS (SELECT FROM pg_policy p WHERE p.oid = d.objid AND p.polrelid = c.oid)
       OR coalesce(v.relkind = 'v' AND r.rulename = '_RETURN' OR v.oid = c.oid, false)))
ORDER BY 1;

-- name: leaf_foreign_keys
-- Foreign keys of partitions that are still to be proven; one that is NOT ENFORCED (since 18) cannot be.
SELECT n.nspname, c.relname, k.conname
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_constraint k ON k.conrelid = c.oid AND k.contype = 'f' AND NOT k.convalidated
WHERE i.inhparent = %(oid)s AND coalesce((to_jsonb(k) ->> 'conenforced')::bool, true)
ORDER BY 1, 2, 3;

-- name: sync_triggers
-- Ours on a table, with whether they always fire.
SELECT tgname || ' ' || tgenabled::text FROM pg_trigger
WHERE tgrelid = %(oid)s AND tgname LIKE '!frostline%%' ORDER BY 1;

-- name: column_type
-- A type of somebody's own is spelled with its schema, so that it is never taken for the built-in one of that name.
SELECT CASE WHEN t.typnamespace = 'pg_catalog'::regnamespace THEN t.typname::text ELSE format_type(t.oid, NULL) END
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = %(oid)s AND a.attname = %(column)s;

-- name: partitioning
-- A table that is being partitioned, by itself or by what it becomes.
SELECT source, target, plan, shape, state, filenode, pages, next_page
FROM frostline.partitionings
WHERE %(oid)s IN (source, target);

-- name: partitionings
SELECT source FROM frostline.partitionings ORDER BY started_at;
