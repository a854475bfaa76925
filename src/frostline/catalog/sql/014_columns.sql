-- Columns that change: what the delta and the lake know of each, and whether they have followed the table.

ALTER TABLE frostline.columns
    DROP CONSTRAINT columns_table_id_lake_name_key,
    ALTER COLUMN lake_name DROP NOT NULL,
    ADD COLUMN field_id int,
    ADD COLUMN delta_name name,
    ADD COLUMN base regtype,
    ADD COLUMN typmod int,
    ADD COLUMN missing text,
    ADD COLUMN undecided text;
COMMENT ON TABLE frostline.columns IS
    'the columns of registered tables by attribute number, which no rename changes; 0: the lake''s own, see layout.py';
COMMENT ON COLUMN frostline.columns.lake_name IS 'its name in the Iceberg table; NULL: it has none there yet';
COMMENT ON COLUMN frostline.columns.field_id IS 'its field id in the Iceberg table';
COMMENT ON COLUMN frostline.columns.delta_name IS 'its name in the delta; NULL: it is not there yet';
COMMENT ON COLUMN frostline.columns.base IS 'the type, under any domain, that delta and lake have it as';
COMMENT ON COLUMN frostline.columns.missing IS 'its value, as text, in cold rows from before it was added';
COMMENT ON COLUMN frostline.columns.undecided IS 'why that value is not known; see frostline.fill()';

ALTER TABLE frostline.tables ADD COLUMN followed text, ADD COLUMN heaps jsonb NOT NULL DEFAULT '{}';
COMMENT ON COLUMN frostline.tables.followed IS 'frostline.shape() of the table that delta and functions were last made for';
COMMENT ON COLUMN frostline.tables.heaps IS 'the hot partitions and their files when all columns were recorded last';

-- Iceberg numbers the columns of a new table from 1, in the order they were registered in.
UPDATE frostline.columns c
SET field_id = n.number, delta_name = d.attname, base = d.atttypid, typmod = d.atttypmod
FROM (SELECT table_id, attnum, row_number() OVER (PARTITION BY table_id ORDER BY attnum) AS number FROM frostline.columns) n
JOIN frostline.tables t ON t.id = n.table_id
JOIN pg_attribute a ON a.attrelid = t.relation AND a.attnum = n.attnum
JOIN pg_attribute d ON d.attrelid = t.delta AND d.attname = a.attname
WHERE c.table_id = n.table_id AND c.attnum = n.attnum;

-- All of a table that what is made for its cold rows depends on. Grants, statistics and defaults are not part of it.
CREATE FUNCTION frostline.shape(table_id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT md5(concat_ws('|',
        (SELECT string_agg(concat_ws(' ', a.attnum, quote_ident(a.attname), a.atttypid, a.atttypmod, a.attcollation,
                                     a.attnotnull, a.attgenerated, CASE WHEN a.attgenerated <> '' THEN d.adbin::text END), ','
                           ORDER BY a.attnum)
         FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
         WHERE a.attrelid = t.relation AND a.attnum > 0 AND NOT a.attisdropped),
        (SELECT string_agg(concat_ws(' ', quote_ident(c.conname), c.contype, c.conkey::text, c.confrelid, c.confkey::text,
                                     c.confmatchtype, c.conbin::text, to_jsonb(c) ->> 'conenforced'), ','
                           ORDER BY c.conname)
         FROM pg_constraint c
         WHERE c.conrelid = t.relation AND c.contype = 'c'
            OR c.conrelid = t.hot AND c.contype IN ('p', 'f') AND c.conparentid = 0)))
    FROM frostline.tables t
    WHERE t.id = $1
$$;
COMMENT ON FUNCTION frostline.shape(bigint) IS 'Changes whenever columns or constraints of a registered table do';

CREATE FUNCTION frostline.heaps(table_id bigint) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(jsonb_object_agg(c.oid, c.relfilenode), '{}')
    FROM frostline.tables t JOIN pg_inherits i ON i.inhparent = t.hot JOIN pg_class c ON c.oid = i.inhrelid AND c.relkind = 'r'
    WHERE t.id = $1
$$;
UPDATE frostline.tables SET heaps = frostline.heaps(id);

-- Columns of a table that nothing is recorded of yet, with the value that rows from before they were added have.
-- Postgres evaluates a default once, when the column is added, and keeps the value with each heap that has older rows,
-- until that is rewritten. A heap that was not rewritten and has none tells that there was no default. For a volatile
-- default, or another type, Postgres rewrites them all.
CREATE FUNCTION frostline.added_columns(table_id bigint)
RETURNS TABLE (attnum smallint, missing text, undecided text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT a.attnum, kept.value,
           CASE WHEN a.attgenerated <> '' THEN 'it is generated'
                WHEN kept.found OR kept.same AND NOT a.attnotnull THEN NULL
                WHEN a.attidentity <> '' OR d.adbin::text ~ 'NEXTVALUEEXPR' OR EXISTS (
                    SELECT FROM regexp_matches(d.adbin::text, ':(?:funcid|opfuncid) (\d+)', 'g') m
                    JOIN pg_proc p ON p.oid = m[1]::oid AND p.provolatile = 'v')
                THEN 'its default is volatile, so each row has a value of its own'
                WHEN a.attnotnull OR d.oid IS NOT NULL OR t.heaps <> '{}'
                THEN 'no hot partition has kept the value it was added with'
           END
    FROM frostline.tables t
    JOIN pg_attribute a ON a.attrelid = t.relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> 'v'
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    CROSS JOIN LATERAL (
        SELECT coalesce(bool_or(l.atthasmissing), false) AS found, max((l.attmissingval::text::text[])[1]) AS value,
               coalesce(bool_or(t.heaps ->> c.oid::text = c.relfilenode::text), false) AS same
        FROM pg_inherits p
        JOIN pg_class c ON c.oid = p.inhrelid AND c.relkind = 'r'
        JOIN pg_attribute l ON l.attrelid = c.oid AND l.attname = a.attname
        WHERE p.inhparent = t.hot
    ) kept
    WHERE t.id = $1 AND NOT EXISTS (SELECT FROM frostline.columns f WHERE f.table_id = t.id AND f.attnum = a.attnum)
$$;

-- The way out where that value is not known: whoever owns the table says what it is.
CREATE FUNCTION frostline.fill(target regclass, column_name name, value text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    managed frostline.tables;
    found record;
BEGIN
    SELECT * INTO managed FROM frostline.tables t WHERE t.relation = target;
    IF managed.id IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '42809', MESSAGE = format('%s is not registered with Frostline', target);
    END IF;
    IF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = target AND pg_has_role(session_user, c.relowner, 'USAGE')) THEN
        RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('must be owner of table %s', target);
    END IF;
    SELECT a.attnum, a.attnotnull, format_type(a.atttypid, a.atttypmod) AS type, a.atttypid, a.atttypmod,
           f.attnum IS NOT NULL AS known, coalesce(f.undecided, n.undecided) AS undecided
    INTO found
    FROM pg_attribute a
    LEFT JOIN frostline.columns f ON f.table_id = managed.id AND f.attnum = a.attnum
    LEFT JOIN frostline.added_columns(managed.id) n ON n.attnum = a.attnum
    WHERE a.attrelid = target AND a.attname = column_name AND a.attnum > 0 AND NOT a.attisdropped;
    IF found.attnum IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '42703', MESSAGE = format('column "%s" of relation "%s" does not exist', column_name, target);
    ELSIF found.undecided IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000',
            MESSAGE = format('the value of column %s in cold rows of %s from before it was added is known', column_name, target),
            HINT = 'Nothing was changed. UPDATE changes it.';
    END IF;
    -- As the column's own input function understands it.
    EXECUTE format('SELECT frostline.output(%L::%s)', value, found.type) INTO value;
    INSERT INTO frostline.columns (table_id, attnum, base, typmod, missing)
    SELECT managed.id, found.attnum, base.oid, base.typmod, value
    FROM (
        WITH RECURSIVE unwrapped AS (
            SELECT found.atttypid AS oid, found.atttypmod AS typmod
            UNION ALL
            SELECT b.typbasetype, CASE WHEN u.typmod >= 0 THEN u.typmod ELSE b.typtypmod END
            FROM unwrapped u JOIN pg_type b ON b.oid = u.oid AND b.typtype = 'd'
        )
        SELECT u.oid, u.typmod FROM unwrapped u JOIN pg_type b ON b.oid = u.oid AND b.typtype <> 'd'
    ) base
    ON CONFLICT ON CONSTRAINT columns_pkey DO UPDATE SET missing = excluded.missing, undecided = NULL;
END $$;
COMMENT ON FUNCTION frostline.fill(regclass, name, text) IS
    'Say which value a column that was added later has in cold rows that are older than it';
