-- Constraints that were added later: Postgres believes them of foreign partitions without a look, so somebody has to look.

ALTER TABLE frostline.tables ADD COLUMN proven text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN frostline.tables.proven IS 'constraints of the table that every cold row is known to satisfy, by their identity';

-- CHECKs and NOT NULLs that the planner relies on. One that was dropped and made again is another one.
CREATE FUNCTION frostline.constraints(table_id bigint) RETURNS TABLE (identity text, name text, violated text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
SELECT 'check ' || c.oid, quote_ident(c.conname), format('(%s) IS FALSE', pg_get_expr(c.conbin, c.conrelid))
FROM frostline.tables t JOIN pg_constraint c ON c.conrelid = t.relation
WHERE t.id = table_id AND c.contype = 'c' AND c.convalidated AND coalesce((to_jsonb(c) ->> 'conenforced')::bool, true)
UNION ALL
SELECT format('not null %s %s', a.attnum, a.xmin), format('NOT NULL of column %I', a.attname), format('num_nulls(%I) > 0', a.attname)
FROM frostline.tables t JOIN pg_attribute a ON a.attrelid = t.relation
WHERE t.id = table_id AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull
$$;
