-- Options of a table, what was recorded of each archived period, and foreign keys of cold rows.

ALTER TABLE frostline.tables
    ADD COLUMN cold_fk text NOT NULL DEFAULT 'check' CHECK (cold_fk IN ('check', 'none')),
    ADD COLUMN premake int NOT NULL DEFAULT 2 CHECK (premake BETWEEN 0 AND 1000),
    ADD COLUMN coalesce_to text,
    ADD COLUMN coalesce_after text,
    ADD CHECK ((coalesce_to IS NULL) = (coalesce_after IS NULL));
COMMENT ON COLUMN frostline.tables.cold_fk IS 'check: rows that cold rows refer to cannot be deleted; none: they can';
COMMENT ON COLUMN frostline.tables.premake IS 'how many partitions are kept ready after the current one';
COMMENT ON COLUMN frostline.tables.coalesce_to IS 'the width old periods are joined to; NULL: they stay as they are';
COMMENT ON COLUMN frostline.tables.coalesce_after IS 'how old a period must be for that';

ALTER TABLE frostline.operations DROP CONSTRAINT operations_kind_check;
ALTER TABLE frostline.operations ADD CONSTRAINT operations_kind_check CHECK (kind IN ('archive', 'coalesce'));

ALTER TABLE frostline.periods
    ADD COLUMN digest jsonb,
    ADD COLUMN verified_at timestamptz,
    ADD COLUMN alarm text;
COMMENT ON COLUMN frostline.periods.digest IS
    'rows of the period in the lake, and of each column (by number) how many values and the sum of their hashes';
COMMENT ON COLUMN frostline.periods.alarm IS 'what `frostline verify` found wrong; NULL: nothing';

-- Stands on every table that a registered one refers to. The foreign key on the hot partition has been checked when
-- this fires (its triggers sort first), so whatever still refers to the old key is cold.
CREATE FUNCTION frostline.keep_cold_references() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
    managed frostline.tables;
    found_fk record;
    refers text;
    stands text;
    names text;
    key text;
    broken bool;
BEGIN
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        -- A period archived since our snapshot is hot in none of our reads: 40001 instead of overlooking its rows.
        SELECT * INTO managed FROM frostline.tables t WHERE t.id = tg_argv[0]::bigint FOR SHARE;
    ELSE
        SELECT * INTO managed FROM frostline.tables t WHERE t.id = tg_argv[0]::bigint;
    END IF;
    SELECT c.* INTO found_fk FROM pg_constraint c
    WHERE c.conrelid = managed.hot AND c.contype = 'f' AND c.conname = tg_argv[1] AND c.conparentid = 0;
    IF managed.snapshot_id IS NULL OR found_fk.oid IS NULL THEN
        RETURN NULL;
    END IF;
    IF tg_op = 'TRUNCATE' THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = format('cannot truncate %s: cold rows of %s refer to it', found_fk.confrelid::regclass, managed.relation),
            HINT = 'Nothing was changed. Delete rows one by one, or register with cold_fk = none.';
    END IF;
    SELECT string_agg(format('($1).%I OPERATOR(%I.%s) c.%I%s', pa.attname, fn.nspname, fo.oprname, fa.attname,
                             CASE WHEN fa.attcollation <> pa.attcollation
                                  THEN format(' COLLATE %I.%I', cn.nspname, co.collname) END), ' AND ' ORDER BY k.place),
           string_agg(format('($1).%I OPERATOR(%I.%s) p.%I', pa.attname, pn.nspname, po.oprname, pa.attname),
                      ' AND ' ORDER BY k.place),
           string_agg(quote_ident(pa.attname), ', ' ORDER BY k.place)
    INTO refers, stands, names
    FROM unnest(found_fk.conkey, found_fk.confkey, found_fk.conpfeqop, found_fk.conppeqop)
         WITH ORDINALITY AS k (fk, pk, pfop, ppop, place)
    JOIN pg_attribute fa ON fa.attrelid = found_fk.conrelid AND fa.attnum = k.fk
    JOIN pg_attribute pa ON pa.attrelid = found_fk.confrelid AND pa.attnum = k.pk
    JOIN pg_operator fo ON fo.oid = k.pfop JOIN pg_namespace fn ON fn.oid = fo.oprnamespace
    JOIN pg_operator po ON po.oid = k.ppop JOIN pg_namespace pn ON pn.oid = po.oprnamespace
    LEFT JOIN pg_collation co ON co.oid = pa.attcollation LEFT JOIN pg_namespace cn ON cn.oid = co.collnamespace;

    -- Deleted and inserted again, or moved to another partition: nothing is left without its referent.
    EXECUTE format('SELECT EXISTS (SELECT FROM %s p WHERE %s)', found_fk.confrelid::regclass, stands) INTO broken USING OLD;
    IF broken THEN
        RETURN NULL;
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s c WHERE %s)', managed.relation, refers) INTO broken USING OLD;
    IF broken THEN
        EXECUTE format('SELECT concat_ws('', '', %s) FROM (SELECT ($1).*) p',
                       (SELECT string_agg('p.' || quote_ident(pa.attname), ', ' ORDER BY k.place)
                        FROM unnest(found_fk.confkey) WITH ORDINALITY AS k (pk, place)
                        JOIN pg_attribute pa ON pa.attrelid = found_fk.confrelid AND pa.attnum = k.pk)) INTO key USING OLD;
        RAISE EXCEPTION USING ERRCODE = '23503', CONSTRAINT = found_fk.conname,
            MESSAGE = format('update or delete on table "%s" violates foreign key constraint "%s" on table "%s"',
                             found_fk.confrelid::regclass, found_fk.conname, managed.relation),
            DETAIL = format('Key (%s)=(%s) is still referenced from cold rows of table "%s".', names, key, managed.relation),
            HINT = CASE WHEN CASE tg_op WHEN 'DELETE' THEN found_fk.confdeltype ELSE found_fk.confupdtype END IN ('c', 'n', 'd')
                        THEN 'Nothing was changed. CASCADE, SET NULL and SET DEFAULT cannot change cold rows yet.'
                        ELSE 'Nothing was changed.' END;
    END IF;
    RETURN NULL;
END $$;
-- In a trigger of his own making anybody could ask it which keys there are.
REVOKE EXECUTE ON FUNCTION frostline.keep_cold_references() FROM PUBLIC;
COMMENT ON FUNCTION frostline.keep_cold_references() IS
    'Trigger on a referenced table: refuses to delete, or give another key to, a row that cold rows refer to';

-- A registered table may be a branch of a larger one: its own name is looked for among the ancestors, not the root.
CREATE OR REPLACE FUNCTION frostline.explain_plan(plan jsonb) RETURNS SETOF frostline.explanation
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE nodes (node, place) AS (
        SELECT plan -> 0 -> 'Plan', ARRAY[]::bigint[]
        UNION ALL
        SELECT child.node, n.place || child.number
        FROM nodes n
        CROSS JOIN LATERAL jsonb_array_elements(n.node -> 'Plans') WITH ORDINALITY AS child (node, number)
    ), scans AS (
        SELECT n.node, n.place, to_regclass(format('%I.%I', n.node ->> 'Schema', n.node ->> 'Relation Name')) AS relation
        FROM nodes n
        WHERE n.node ? 'Remote SQL' OR (n.node ? 'Relation Name' AND n.node ->> 'Node Type' LIKE '%Scan')
    ), managed AS (
        SELECT s.*, t.relation AS root, p.foreign_table IS NOT NULL OR s.node ? 'Remote SQL' AS cold,
               frostline.explain_remote(s.node ->> 'Remote SQL') AS said
        FROM scans s
        LEFT JOIN frostline.periods p ON p.foreign_table = s.relation
        LEFT JOIN frostline.tables t ON t.relation IN (SELECT relid FROM pg_partition_ancestors(s.relation))
    ), pruned AS (
        SELECT m.root, (SELECT count(*) FROM pg_partition_tree(m.root) WHERE isleaf) AS leaves,
               count(DISTINCT m.relation) AS kept
        FROM managed m
        WHERE m.root IS NOT NULL
        GROUP BY m.root
    )
    SELECT e.*
    FROM (
        SELECT m.place, row(
            coalesce(m.relation::text, m.node ->> 'Relations', m.node ->> 'Relation Name'),
            CASE WHEN m.cold THEN 'cold' WHEN m.root IS NOT NULL THEN 'hot' ELSE 'plain' END,
            (m.node ->> 'Plan Rows')::float8,
            coalesce(m.said ->> 'engine', CASE WHEN m.cold THEN 'not known' ELSE 'Postgres' END),
            (m.said ->> 'snapshot')::bigint,
            (m.said ->> 'files')::int, (m.said ->> 'of_files')::int,
            (m.said ->> 'bytes')::bigint, (m.said ->> 'of_bytes')::bigint,
            (m.said ->> 'delta_rows')::bigint,
            m.said ->> 'pushed',
            concat_ws(' AND ', m.said ->> 'kept', m.node ->> 'Filter', m.node ->> 'Index Cond'),
            m.said ->> 'why',
            m.node ->> 'Remote SQL'
        )::frostline.explanation AS line
        FROM managed m
        UNION ALL
        SELECT ARRAY[2147483647], row(
            p.root::text, 'pruned', 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
            format('%s of %s partitions are not read', p.leaves - p.kept, p.leaves), NULL
        )::frostline.explanation
        FROM pruned p
        WHERE p.leaves > p.kept
    ) AS found
    CROSS JOIN LATERAL (SELECT (found.line).*) AS e
    ORDER BY found.place
$$;

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
