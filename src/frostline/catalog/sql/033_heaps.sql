-- Files have numbers of their cluster: in another one, loaded from a dump, a partition may have by chance those that are
-- recorded, and was not what it was then.

CREATE OR REPLACE FUNCTION frostline.heaps(table_id bigint) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(jsonb_object_agg(c.oid, c.relfilenode || ' of ' || s.system_identifier), '{}')
    FROM frostline.tables t JOIN pg_inherits i ON i.inhparent = t.hot JOIN pg_class c ON c.oid = i.inhrelid AND c.relkind = 'r'
    CROSS JOIN pg_control_system() s
    WHERE t.id = $1
$$;
-- They were recorded by the cluster that the lake belongs to, which this one may be a copy of.
UPDATE frostline.tables t
SET heaps = (SELECT coalesce(jsonb_object_agg(h.key, h.value || ' of ' || i.system), '{}') FROM jsonb_each_text(t.heaps) h)
FROM frostline.installation i WHERE i.system IS NOT NULL;

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
