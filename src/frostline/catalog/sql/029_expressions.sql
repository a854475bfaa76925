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

CREATE FUNCTION frostline.expression_changed(known text[], current text[]) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('its expression was changed from %s to %s', $1[2], $2[2]) WHERE $1[1] <> $2[1] AND $1[2] <> $2[2]
$$;
COMMENT ON FUNCTION frostline.expression_changed(text[], text[]) IS 'Why values computed then are not those of now; NULL: they are';
