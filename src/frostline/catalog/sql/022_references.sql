-- What is done to cold rows when the row they refer to goes away or gets another key, as Postgres does it to hot ones: only
-- NO ACTION is deferred and satisfied with a row that has come back. A row that an UPDATE moves to another partition is
-- deleted there, as far as its triggers can tell: with another key that is refused before (the trigger is on partitioned tables).
CREATE OR REPLACE FUNCTION frostline.keep_cold_references() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
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
    stays bool;
    restricts bool;
    said text;
BEGIN
    IF tg_op = 'UPDATE' AND tg_when = 'BEFORE' THEN
        EXECUTE format('SELECT %s FROM (SELECT ($1).*) n', pg_get_partition_constraintdef(tg_relid)) INTO stays USING NEW;
        IF stays IS NOT FALSE THEN
            RETURN NEW;
        END IF;
    END IF;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        -- A period archived since our snapshot is hot in none of our reads: 40001 instead of overlooking its rows.
        SELECT * INTO managed FROM frostline.tables t WHERE t.id = tg_argv[0]::bigint FOR SHARE;
    ELSE
        SELECT * INTO managed FROM frostline.tables t WHERE t.id = tg_argv[0]::bigint;
    END IF;
    SELECT c.* INTO found_fk FROM pg_constraint c
    WHERE c.conrelid = managed.hot AND c.contype = 'f' AND c.conname = tg_argv[1] AND c.conparentid = 0;
    IF managed.snapshot_id IS NULL OR found_fk.oid IS NULL THEN
        RETURN NEW;
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

    IF tg_when = 'BEFORE' THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %s c WHERE %s AND c.%I < %L)', managed.relation, refers,
                       (SELECT a.attname FROM pg_partitioned_table p JOIN pg_attribute a
                        ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0] WHERE p.partrelid = managed.relation),
                       managed.seam) INTO broken USING OLD;
        IF broken THEN
            RAISE EXCEPTION USING ERRCODE = '0A000',
                MESSAGE = format('a row of %s that cold rows of %s refer to cannot get a key that belongs into another partition',
                                 found_fk.confrelid::regclass, managed.relation),
                HINT = 'Nothing was changed. Insert the row with its new key, let the others refer to it, and delete the old one.';
        END IF;
        RETURN NEW;
    END IF;
    action := CASE tg_op WHEN 'DELETE' THEN found_fk.confdeltype ELSE found_fk.confupdtype END;
    -- Deleted and inserted again, which only NO ACTION looks at, or moved to another partition, which is a DELETE to us:
    -- nothing is left without its referent.
    IF action = 'a' OR tg_op = 'DELETE' AND (SELECT c.relispartition FROM pg_class c WHERE c.oid = tg_relid) THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %s p WHERE %s)', found_fk.confrelid::regclass, stands) INTO broken USING OLD;
        IF broken THEN
            RETURN NULL;
        END IF;
    END IF;
    IF action IN ('c', 'n', 'd') THEN
        -- Both tiers are meant, whatever the session says of its own statements.
        said := current_setting('frostline.strict', true);
        IF said IS NOT NULL THEN
            PERFORM set_config('frostline.strict', 'off', true);
        END IF;
    END IF;
    IF action = 'c' AND tg_op = 'DELETE' THEN
        EXECUTE format('DELETE FROM %s c WHERE %s', managed.relation, refers) USING OLD;
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
    END IF;
    IF action IN ('c', 'n', 'd') THEN
        IF said IS NOT NULL THEN
            PERFORM set_config('frostline.strict', said, true);
        END IF;
        RETURN NULL;
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s c WHERE %s)', managed.relation, refers) INTO broken USING OLD;
    IF broken THEN
        EXECUTE format('SELECT concat_ws('', '', %s) FROM (SELECT ($1).*) p',
                       (SELECT string_agg('p.' || quote_ident(pa.attname), ', ' ORDER BY k.place)
                        FROM unnest(found_fk.confkey) WITH ORDINALITY AS k (pk, place)
                        JOIN pg_attribute pa ON pa.attrelid = found_fk.confrelid AND pa.attnum = k.pk)) INTO key USING OLD;
        -- Postgres has a code of its own for it since 18.
        restricts := action = 'r' AND current_setting('server_version_num')::int >= 180000;
        RAISE EXCEPTION USING ERRCODE = CASE WHEN restricts THEN '23001' ELSE '23503' END, CONSTRAINT = found_fk.conname,
            MESSAGE = format('update or delete on table "%s" violates %sforeign key constraint "%s" on table "%s"',
                             found_fk.confrelid::regclass, CASE WHEN restricts THEN 'RESTRICT setting of ' END,
                             found_fk.conname, managed.relation),
            DETAIL = format('Key (%s)=(%s) is still referenced from cold rows of table "%s".', names, key, managed.relation),
            HINT = 'Nothing was changed.';
    END IF;
    RETURN NULL;
END $$;
