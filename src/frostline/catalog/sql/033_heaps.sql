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
