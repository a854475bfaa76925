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
