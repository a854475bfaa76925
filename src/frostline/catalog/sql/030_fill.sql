-- Columns that were added with a value, or a constraint, that old rows cannot have.

-- Of the values Postgres can keep with a heap those that the lake has no form for and that a default may well be.
CREATE FUNCTION frostline.kept_value(type oid, typmod int, value text) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE unwrapped AS (
        SELECT $1 AS oid, $2 AS typmod
        UNION ALL
        SELECT b.typbasetype, CASE WHEN u.typmod >= 0 THEN u.typmod ELSE b.typtypmod END
        FROM unwrapped u JOIN pg_type b ON b.oid = u.oid AND b.typtype = 'd'
    )
    -- What model/types.py calls `cannot_hold`, each value read as its type.
    SELECT NOT coalesce(bool_or(CASE u.oid
        WHEN 'date'::regtype THEN NOT isfinite($3::date)
        WHEN 'timestamp'::regtype THEN NOT isfinite($3::timestamp) OR $3::timestamp >= '294247-01-01'
        WHEN 'timestamptz'::regtype THEN NOT isfinite($3::timestamptz) OR $3::timestamptz >= '294247-01-01'
        WHEN 'numeric'::regtype THEN u.typmod >= 0 AND $3 = 'NaN'
        WHEN '"char"'::regtype THEN $3::"char"::int < 0 END), false)
    FROM unwrapped u
$$;
COMMENT ON FUNCTION frostline.kept_value(oid, int, text) IS 'False: the lake has no form for this value of a column, as text';

CREATE OR REPLACE FUNCTION frostline.added_columns(table_id bigint)
RETURNS TABLE (attnum smallint, missing text, undecided text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT a.attnum, CASE WHEN frostline.kept_value(a.atttypid, a.atttypmod, kept.value) THEN kept.value END,
           CASE WHEN a.attgenerated <> '' THEN 'it is generated'
                WHEN NOT frostline.kept_value(a.atttypid, a.atttypmod, kept.value)
                THEN format('it was added with the value %s, which the lake cannot hold', kept.value)
                WHEN kept.found OR kept.same AND NOT a.attnotnull THEN NULL
                WHEN a.attidentity <> '' OR d.adbin::text ~ 'NEXTVALUEEXPR' OR EXISTS (
                    SELECT FROM regexp_matches(d.adbin::text, ':(?:funcid|opfuncid) (\d+)', 'g') m
                    JOIN pg_proc p ON p.oid = m[1]::oid AND p.provolatile = 'v')
                THEN 'its default is volatile, so each row has a value of its own'
                -- Nor was there one: a default that was dropped again has left no trace.
                ELSE 'no hot partition has kept the value it was added with'
           END
    FROM frostline.tables t
    CROSS JOIN LATERAL (SELECT frostline.heaps(t.id) AS heaps) n
    JOIN pg_attribute a ON a.attrelid = t.relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated <> 'v'
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    CROSS JOIN LATERAL (
        SELECT coalesce(bool_or(l.atthasmissing), false) AS found, max((l.attmissingval::text::text[])[1]) AS value,
               coalesce(bool_or(t.heaps -> c.oid::text = n.heaps -> c.oid::text), false) AS same
        FROM pg_inherits p
        JOIN pg_class c ON c.oid = p.inhrelid AND c.relkind = 'r'
        JOIN pg_attribute l ON l.attrelid = c.oid AND l.attname = a.attname
        WHERE p.inhparent = t.hot
    ) kept
    WHERE t.id = $1 AND NOT EXISTS (SELECT FROM frostline.columns f WHERE f.table_id = t.id AND f.attnum = a.attnum)
$$;

-- Recorded as if it could be held.
UPDATE frostline.columns c
SET missing = NULL, undecided = format('it was added with the value %s, which the lake cannot hold', c.missing)
WHERE NOT frostline.kept_value(c.base::oid, c.typmod, c.missing);

CREATE OR REPLACE FUNCTION frostline.fill(target regclass, column_name name, value text) RETURNS void
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
    SELECT a.attnum, format_type(a.atttypid, a.atttypmod) AS type, a.atttypid, a.atttypmod, a.attgenerated,
           a.attnotnull AND NOT EXISTS (
               SELECT FROM pg_constraint c  -- since 18 it can be NOT VALID, and then no plan relies on it
               WHERE c.conrelid = target AND c.contype = 'n' AND c.conkey = ARRAY[a.attnum] AND NOT c.convalidated
           ) AS attnotnull,
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
    ELSIF found.attgenerated <> '' THEN
        -- Rows that come back are computed, and would not be what they were.
        RAISE EXCEPTION USING ERRCODE = '428C9', MESSAGE = format('column %s of %s is generated, and can be given no value', column_name, target),
            HINT = 'Nothing was changed. Drop it; one that is not generated can be added and filled.';
    ELSIF value IS NULL AND found.attnotnull THEN
        RAISE EXCEPTION USING ERRCODE = '23502', MESSAGE = format('column %s of %s is NOT NULL, and so of cold rows too', column_name, target),
            HINT = 'Nothing was changed. Give another value than NULL; UPDATE then finds these rows by it.';
    END IF;
    -- As the column's own input function understands it.
    EXECUTE format('SELECT frostline.output(%L::%s)', value, found.type) INTO value;
    IF NOT frostline.kept_value(found.atttypid, found.atttypmod, value) THEN
        RAISE EXCEPTION USING ERRCODE = '22003', MESSAGE = format('the lake cannot hold the value %s of column %s', value, column_name),
            HINT = 'Nothing was changed. Give another value, or NULL.';
    END IF;
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

-- Since 18 a NOT NULL can be NOT VALID too, and then no plan relies on it.
CREATE OR REPLACE FUNCTION frostline.constraints(table_id bigint) RETURNS TABLE (identity text, name text, violated text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT 'check ' || c.oid, quote_ident(c.conname), format('(%s) IS FALSE', pg_get_expr(c.conbin, c.conrelid))
FROM frostline.tables t JOIN pg_constraint c ON c.conrelid = t.relation
WHERE t.id = table_id AND c.contype = 'c' AND c.convalidated AND coalesce((to_jsonb(c) ->> 'conenforced')::bool, true)
UNION ALL
SELECT format('not null %s %s', a.attnum, a.xmin), format('NOT NULL of column %I', a.attname), format('num_nulls(%I) > 0', a.attname)
FROM frostline.tables t JOIN pg_attribute a ON a.attrelid = t.relation
WHERE t.id = table_id AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull
  AND NOT EXISTS (SELECT FROM pg_constraint c
                  WHERE c.conrelid = a.attrelid AND c.contype = 'n' AND c.conkey = ARRAY[a.attnum] AND NOT c.convalidated)
$$;
