-- Expressions of stored generated columns: Postgres computes hot rows anew when one is altered, and leaves foreign ones.

ALTER TABLE frostline.columns ADD COLUMN expression text[];
COMMENT ON COLUMN frostline.columns.expression IS 'frostline.expression() that its values in cold rows were computed by';

-- As Postgres keeps it, which no rename changes, and as it prints it, which is the same in a database loaded from a dump.
CREATE FUNCTION frostline.expression(relation oid, attnum smallint) RETURNS text[]
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT ARRAY[d.adbin::text, pg_get_expr(d.adbin, d.adrelid)]
    FROM pg_attribute a JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE a.attrelid = $1 AND a.attnum = $2 AND a.attgenerated = 's'
$$;
COMMENT ON FUNCTION frostline.expression(oid, smallint) IS 'What a stored generated column is computed by; NULL: by nothing';

-- What has been altered before this (17 was the first that could) is not known any more.
UPDATE frostline.columns c SET expression = frostline.expression(t.relation::oid, c.attnum)
FROM frostline.tables t WHERE t.id = c.table_id AND c.attnum > 0;

-- Whether no hot partition has the file that it had when the columns were recorded last. Another expression rewrites
-- all of them; one that was dropped afterwards leaves no other trace.
CREATE FUNCTION frostline.rewritten(table_id bigint) RETURNS bool
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT NOT EXISTS (SELECT FROM jsonb_each_text(t.heaps) k JOIN jsonb_each_text(frostline.heaps(t.id)) n USING (key, value))
    FROM frostline.tables t WHERE t.id = $1
$$;
COMMENT ON FUNCTION frostline.rewritten(bigint) IS 'Whether none of the hot partitions is as it was when the columns were recorded last';

-- Columns by their number: one that has got the name of another since is not the one that was meant.
CREATE FUNCTION frostline.expression_changed(known text[], current text[], rewritten bool) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE
        WHEN $2 IS NULL AND $3 THEN format('its expression was %s, and may have been another one before it was dropped', $1[2])
        WHEN $1[1] <> $2[1] AND ($1[2] <> $2[2]
             OR ARRAY(SELECT m[1] FROM regexp_matches($1[1], ':varattno (\d+)', 'g') m)
             <> ARRAY(SELECT m[1] FROM regexp_matches($2[1], ':varattno (\d+)', 'g') m))
        THEN format('its expression was changed from %s to %s', $1[2], $2[2]) END
    WHERE $1 IS NOT NULL
$$;
COMMENT ON FUNCTION frostline.expression_changed(text[], text[], bool) IS 'Why values computed then are not those of now; NULL: they are';

-- The way out where that cannot be known, or is no change in truth: whoever owns the table says so.
CREATE FUNCTION frostline.keep_computed(target regclass, column_name name) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = target AND pg_has_role(session_user, c.relowner, 'USAGE')) THEN
        RAISE EXCEPTION USING ERRCODE = '42501', MESSAGE = format('must be owner of table %s', target);
    END IF;
    -- That of now, and not none: another one, later, is to be noticed.
    UPDATE frostline.columns c SET expression = frostline.expression(target, c.attnum)
    FROM frostline.tables t JOIN pg_attribute a ON a.attrelid = t.relation
    WHERE t.relation = target AND c.table_id = t.id AND c.attnum = a.attnum AND a.attname = column_name AND NOT a.attisdropped;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = '42703', MESSAGE = format('column "%s" of %s is not known to Frostline', column_name, target);
    END IF;
END $$;
COMMENT ON FUNCTION frostline.keep_computed(regclass, name) IS 'Say that the values a generated column has in cold rows are right';
