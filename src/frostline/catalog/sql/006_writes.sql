-- Writing old rows: the gateway computes the new versions and holds them, Postgres collects and commits them.

ALTER TABLE frostline.tables
    ADD COLUMN cold_duplicates text NOT NULL DEFAULT 'error' CHECK (cold_duplicates IN ('error', 'upsert'));
COMMENT ON COLUMN frostline.tables.cold_duplicates IS
    'a cold INSERT of a key that is there: error, or upsert (the newest wins)';

-- Fewer round trips for INSERT and COPY.
ALTER SERVER "frostline gateway (frostline up starts it)" OPTIONS (ADD batch_size '1000');

-- What was held is stored: the argument is the table, the batch and its rows; the answer, the Iceberg snapshot it was
-- computed at.
CREATE FOREIGN TABLE frostline.call_collected (argument text, answer text)
    SERVER "frostline gateway (frostline up starts it)" OPTIONS (schema_name 'frostline call', table_name 'collected');

-- Stands on every table that a registered one refers to. The foreign key on the hot partition has been checked when
-- this fires (its triggers sort first), so whatever still refers to the old key is cold. NO ACTION and RESTRICT are
-- refused for it, CASCADE, SET NULL and SET DEFAULT are done to it by ordinary statements on the registered table.
CREATE OR REPLACE FUNCTION frostline.keep_cold_references() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
    managed frostline.tables;
    found_fk record;
    refers text;
    stands text;
    names text;
    key text;
    broken bool;
    action "char";
    changed text;
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
    action := CASE tg_op WHEN 'DELETE' THEN found_fk.confdeltype ELSE found_fk.confupdtype END;
    IF action = 'c' AND tg_op = 'DELETE' THEN
        EXECUTE format('DELETE FROM %s c WHERE %s', managed.relation, refers) USING OLD;
        RETURN NULL;
    ELSIF action IN ('c', 'n', 'd') THEN
        SELECT string_agg(format('%I = %s', fa.attname, CASE action WHEN 'n' THEN 'NULL' WHEN 'd' THEN 'DEFAULT'
                                                                    ELSE format('($2).%I', pa.attname) END), ', ' ORDER BY k.place)
        INTO changed
        FROM unnest(found_fk.conkey, found_fk.confkey) WITH ORDINALITY AS k (fk, pk, place)
        JOIN pg_attribute fa ON fa.attrelid = found_fk.conrelid AND fa.attnum = k.fk
        JOIN pg_attribute pa ON pa.attrelid = found_fk.confrelid AND pa.attnum = k.pk
        WHERE tg_op <> 'DELETE' OR found_fk.confdelsetcols IS NULL OR k.fk = ANY (found_fk.confdelsetcols);
        EXECUTE format('UPDATE %s c SET %s WHERE %s', managed.relation, changed, refers)
            USING OLD, CASE WHEN tg_op = 'UPDATE' THEN NEW ELSE OLD END;
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
            HINT = 'Nothing was changed.';
    END IF;
    RETURN NULL;
END $$;
COMMENT ON FUNCTION frostline.keep_cold_references() IS
    'Trigger on a referenced table: does to cold rows that refer to a row what their foreign key says';

-- Routed single rows, for clients that want to know where a row went or cannot write a statement that says it.

CREATE TYPE frostline.route AS (hot regclass, key name, key_type text, seam text, primary_key name[], columns name[]);

-- Only names and a bound: whoever may use the table sees them anyway.
CREATE FUNCTION frostline.route(target regclass) RETURNS frostline.route
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    found frostline.route;
BEGIN
    SELECT t.hot, a.attname, format_type(a.atttypid, a.atttypmod), t.seam,
           ARRAY(SELECT ha.attname FROM pg_index i
                 CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, place)
                 JOIN pg_attribute ha ON ha.attrelid = i.indrelid AND ha.attnum = k.attnum
                 WHERE i.indrelid = t.hot AND i.indisprimary AND k.place <= i.indnkeyatts ORDER BY k.place),
           ARRAY(SELECT c.attname FROM pg_attribute c
                 WHERE c.attrelid = t.relation AND c.attnum > 0 AND NOT c.attisdropped AND c.attgenerated = '' ORDER BY c.attnum)
    INTO found
    FROM frostline.tables t
    JOIN pg_partitioned_table p ON p.partrelid = t.relation
    JOIN pg_attribute a ON a.attrelid = t.relation AND a.attnum = p.partattrs[0]
    WHERE t.relation = target;
    IF found.hot IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = '42809', MESSAGE = format('%s is not registered with Frostline', target),
            HINT = format('Register it first: frostline register %s --hot ''3 months''', target);
    END IF;
    RETURN found;
END $$;

-- The condition that names one row, with constants, so that Postgres goes to its partition only.
CREATE FUNCTION frostline.row_condition(target regclass, route frostline.route, key_values jsonb) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    missing text;
    condition text;
BEGIN
    SELECT pg_catalog.string_agg(k, ', ') INTO missing
    FROM pg_catalog.unnest(route.primary_key) k WHERE pg_catalog.jsonb_typeof(key_values -> k) IS NOT DISTINCT FROM 'null'
       OR NOT pg_catalog.jsonb_exists(key_values, k);
    IF missing IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '23502', MESSAGE = pg_catalog.format('no value for %s', missing),
            HINT = pg_catalog.format('A row of %s is named by its whole primary key.', target);
    END IF;
    EXECUTE pg_catalog.format(
        'SELECT pg_catalog.concat_ws('' AND '', %s) FROM pg_catalog.jsonb_populate_record(NULL::%s, $1) r',
        (SELECT pg_catalog.string_agg(pg_catalog.format('pg_catalog.format(''t.%%I = %%L'', %L, r.%I)', k, k), ', ')
         FROM pg_catalog.unnest(route.primary_key) k), target)
    INTO condition USING key_values;
    RETURN condition;
END $$;

CREATE FUNCTION frostline.tier_of(target regclass, route frostline.route, key_values jsonb) RETURNS text
LANGUAGE plpgsql STABLE AS $$
DECLARE
    cold bool;
BEGIN
    EXECUTE pg_catalog.format('SELECT r.%I < %L::%s FROM pg_catalog.jsonb_populate_record(NULL::%s, $1) r',
                              route.key, route.seam, route.key_type, target)
    INTO cold USING key_values;
    RETURN CASE WHEN cold THEN 'cold' ELSE 'hot' END;
END $$;

CREATE FUNCTION frostline.upsert(target regclass, row_values jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    route frostline.route := frostline.route(target);
    condition text := frostline.row_condition(target, route, row_values);
    tier text := frostline.tier_of(target, route, row_values);
    unknown text;
    given text;
    changed text;
    inserted text;
BEGIN
    SELECT pg_catalog.string_agg(k, ', ') INTO unknown
    FROM pg_catalog.jsonb_object_keys(row_values) k WHERE NOT k = ANY (route.columns::text[]);
    IF unknown IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '42703', MESSAGE = pg_catalog.format('%s has no column %s that can be set', target, unknown);
    END IF;
    SELECT pg_catalog.string_agg(pg_catalog.format('%I', c), ', '),
           pg_catalog.string_agg(pg_catalog.format('%1$I = %2$s.%1$I', c, CASE tier WHEN 'hot' THEN 'excluded' ELSE 'r' END), ', ')
               FILTER (WHERE NOT c = ANY (route.primary_key))
    INTO given, changed
    FROM pg_catalog.unnest(route.columns) c WHERE pg_catalog.jsonb_exists(row_values, c::text);
    inserted := pg_catalog.format(
        'INSERT INTO %s (%s) OVERRIDING SYSTEM VALUE SELECT %s FROM pg_catalog.jsonb_populate_record(NULL::%s, $1)',
        CASE tier WHEN 'hot' THEN route.hot ELSE target END, given, given, target);
    IF tier = 'hot' THEN
        EXECUTE inserted || pg_catalog.format(' ON CONFLICT (%s) ',
                     (SELECT pg_catalog.string_agg(pg_catalog.format('%I', k), ', ') FROM pg_catalog.unnest(route.primary_key) k))
                 || coalesce('DO UPDATE SET ' || changed, 'DO NOTHING') USING row_values;
        RETURN tier;
    END IF;
    IF changed IS NULL THEN
        EXECUTE inserted || ' ON CONFLICT DO NOTHING' USING row_values;
        RETURN tier;
    END IF;
    EXECUTE pg_catalog.format('WITH done AS (UPDATE %s t SET %s FROM pg_catalog.jsonb_populate_record(NULL::%s, $1) r WHERE %s'
                              ' RETURNING 1) SELECT ''x'' FROM done', target, changed, target, condition)
        INTO unknown USING row_values;
    IF unknown IS NULL THEN
        EXECUTE inserted USING row_values;
    END IF;
    RETURN tier;
END $$;
COMMENT ON FUNCTION frostline.upsert(regclass, jsonb) IS
    'Insert a row, or set the given columns of the one with its primary key; returns the tier it is in: hot or cold';

CREATE FUNCTION frostline.delete(target regclass, key_values jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    route frostline.route := frostline.route(target);
    condition text := frostline.row_condition(target, route, key_values);
    gone bool;
BEGIN
    EXECUTE pg_catalog.format('WITH gone AS (DELETE FROM %s t WHERE %s RETURNING 1) SELECT count(*) > 0 FROM gone', target, condition)
    INTO gone;
    RETURN CASE WHEN gone THEN frostline.tier_of(target, route, key_values) END;
END $$;
COMMENT ON FUNCTION frostline.delete(regclass, jsonb) IS
    'Delete the row with a primary key; returns the tier it was in, NULL when there is none';

-- Postgres itself cannot move a row into a foreign partition that the same UPDATE may change (0A000).
CREATE FUNCTION frostline.move(target regclass, key_values jsonb, new_key text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    route frostline.route := frostline.route(target);
    condition text := frostline.row_condition(target, route, key_values);
    columns text;
    kept text;
    moved bool;
BEGIN
    SELECT pg_catalog.string_agg(pg_catalog.format('%I', c), ', '),
           pg_catalog.string_agg(CASE WHEN c = route.key THEN pg_catalog.format('%L::%s', new_key, route.key_type)
                                      ELSE pg_catalog.format('g.%I', c) END, ', ')
    INTO columns, kept
    FROM pg_catalog.unnest(route.columns) c;
    EXECUTE pg_catalog.format(
        'WITH g AS (DELETE FROM %1$s t WHERE %2$s RETURNING t.*), n AS ('
        'INSERT INTO %1$s (%3$s) OVERRIDING SYSTEM VALUE SELECT %4$s FROM g RETURNING 1) SELECT count(*) > 0 FROM n',
        target, condition, columns, kept)
    INTO moved;
    RETURN CASE WHEN moved THEN frostline.tier_of(target, route, key_values || pg_catalog.jsonb_build_object(route.key, new_key)) END;
END $$;
COMMENT ON FUNCTION frostline.move(regclass, jsonb, text) IS
    'Give the row with a primary key another partition key, whichever tier either lies in; returns the tier it is in now';
