-- Types that change under their columns: the lake keeps values as the text that Postgres printed, and what that means
-- depends on the labels of enums and the attributes of composite types, however deep inside the column's own type.

ALTER TABLE frostline.columns ADD COLUMN sense jsonb;
COMMENT ON COLUMN frostline.columns.sense IS 'frostline.sense() of its type, of which cold rows have the text; NULL: nothing to tell';

-- By the way from the column's type to each enum and composite in it. No way leads through types of Postgres's own.
CREATE FUNCTION frostline.sense(type oid) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    WITH RECURSIVE inside AS (
        SELECT '.' AS way, t.oid, t.typtype, t.typbasetype, t.typelem, t.typrelid FROM pg_type t WHERE t.oid = $1
        UNION ALL
        SELECT i.way || s.step, t.oid, t.typtype, t.typbasetype, t.typelem, t.typrelid
        FROM inside i
        CROSS JOIN LATERAL (
            SELECT '' AS step, i.typbasetype AS type WHERE i.typtype = 'd'
            UNION ALL SELECT '[]', i.typelem WHERE i.typtype = 'b'
            UNION ALL SELECT '..', (SELECT r.rngsubtype FROM pg_range r WHERE r.rngtypid = i.oid) WHERE i.typtype = 'r'
            UNION ALL SELECT '..', (SELECT r.rngsubtype FROM pg_range r WHERE r.rngmultitypid = i.oid) WHERE i.typtype = 'm'
            UNION ALL
            SELECT row_number() OVER (ORDER BY a.attnum) || '.', a.atttypid
            FROM pg_attribute a
            WHERE i.typtype = 'c' AND a.attrelid = i.typrelid AND a.attnum > 0 AND NOT a.attisdropped
        ) s
        CROSS JOIN LATERAL (SELECT t.* FROM pg_type t WHERE t.oid = s.type LIMIT 1) t
        WHERE s.type >= 16384
    )
    SELECT jsonb_object_agg(i.way, jsonb_build_object('type', i.oid, 'kind', i.typtype, 'parts', coalesce(p.parts, '[]')))
    FROM inside i
    CROSS JOIN LATERAL (
        SELECT CASE i.typtype
            WHEN 'e' THEN (SELECT jsonb_agg(jsonb_build_array(e.oid, e.enumlabel) ORDER BY e.enumsortorder)
                           FROM pg_enum e WHERE e.enumtypid = i.oid)
            ELSE (SELECT jsonb_agg(jsonb_build_array(a.attnum, a.attname) ORDER BY a.attnum)
                  FROM pg_attribute a WHERE a.attrelid = i.typrelid AND a.attnum > 0 AND NOT a.attisdropped)
        END AS parts
    ) p
    WHERE i.typtype IN ('e', 'c')
$$;
COMMENT ON FUNCTION frostline.sense(oid) IS 'What the text of a type''s values depends on: labels and attributes; NULL: on nothing';

-- Why text of then cannot be read as a value of now; NULL: it can. A label is known by its number: it may have got
-- another name, and another label the one it had. In a database that was loaded from a dump all numbers are others; there
-- labels are taken for those they were if they come in the order they had, which Postgres never changes. Attributes
-- likewise: text has them by their places, so that their names do not matter where the type is the same.
CREATE FUNCTION frostline.sense_changed(known jsonb, current jsonb) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    way text;
    was jsonb;
    now jsonb;
    named text;
    loaded bool;
    told jsonpath;
    others text;
BEGIN
    -- Outer types first: what was inside one that has changed cannot be compared.
    FOR way, was IN SELECT e.key, e.value FROM jsonb_each(known) e ORDER BY length(e.key), e.key LOOP
        now := current -> way;
        named := format_type((now ->> 'type')::oid, NULL);
        loaded := was -> 'type' <> now -> 'type';
        IF now IS NULL OR now -> 'kind' <> was -> 'kind' THEN
            RETURN 'it is made of other types';
        ELSIF was ->> 'kind' = 'c' THEN
            told := CASE WHEN loaded THEN '$.parts[*][1]' ELSE '$.parts[*][0]' END;
            IF jsonb_path_query_array(was, told) <> jsonb_path_query_array(now, told) THEN
                RETURN format('attributes of %s were added or dropped', named);
            END IF;
            CONTINUE;
        END IF;
        SELECT string_agg(format('%L of %s is called %L now', w ->> 1, named, n ->> 1), ', ')
        INTO others
        FROM jsonb_array_elements(was -> 'parts') w JOIN jsonb_array_elements(now -> 'parts') n ON n -> 0 = w -> 0
        WHERE n -> 1 <> w -> 1;
        IF NOT loaded AND others IS NOT NULL THEN
            RETURN others;
        ELSIF loaded AND EXISTS (
            SELECT FROM (
                SELECT n.place, lag(n.place) OVER (ORDER BY w.place) AS before
                FROM jsonb_array_elements(was -> 'parts') WITH ORDINALITY w (part, place)
                LEFT JOIN jsonb_array_elements(now -> 'parts') WITH ORDINALITY n (part, place) ON n.part -> 1 = w.part -> 1
            ) labels
            WHERE labels.place IS NULL OR labels.place < labels.before) THEN
            RETURN format('labels of %s were renamed', named);
        END IF;
    END LOOP;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION frostline.sense_changed(jsonb, jsonb) IS 'Why text of then cannot be read as a value of now; NULL: it can';

-- Tables that are up to date stay so.
UPDATE frostline.tables SET followed = '=' WHERE followed = frostline.shape(id);

CREATE OR REPLACE FUNCTION frostline.shape(table_id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT md5(concat_ws('|',
        (SELECT string_agg(concat_ws(' ', a.attnum, quote_ident(a.attname), a.atttypid, a.atttypmod, a.attcollation,
                                     a.attnotnull, a.attgenerated, CASE WHEN a.attgenerated <> '' THEN d.adbin::text END,
                                     CASE WHEN a.atttypid >= 16384 THEN frostline.sense(a.atttypid)::text END), ','
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
COMMENT ON FUNCTION frostline.shape(bigint) IS 'Changes whenever columns, their types or constraints of a registered table do';

UPDATE frostline.columns c
SET sense = frostline.sense(a.atttypid)
FROM frostline.tables t JOIN pg_attribute a ON a.attrelid = t.relation
WHERE c.table_id = t.id AND a.attnum = c.attnum AND a.attnum > 0 AND a.atttypid >= 16384;
UPDATE frostline.tables SET followed = frostline.shape(id) WHERE followed = '=';
