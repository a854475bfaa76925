-- What is done to cold rows when the row they refer to goes away or gets another key, as Postgres does it to hot ones: only
-- NO ACTION is deferred and satisfied with a row that has come back. A row that an UPDATE moves to another partition is
-- deleted there, as far as its triggers can tell: with another key that is refused before (the trigger is on partitioned tables).

-- Refuses it, or returns the statement that is to be run: names in that are qualified, whatever the search_path. Postgres has
-- done to hot rows what there is to do, unless the DELETE is half of an UPDATE: then these are left to it.
CREATE FUNCTION frostline.cold_references_action(
    op text, moment text, referenced oid, table_id bigint, constraint_name text, old_row record, new_row record) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET row_security = off AS $$
DECLARE
    managed frostline.tables;
    found_fk record;
    refers text;
    cold text;
    moves bool;
    stands text;
    names text;
    key text;
    broken bool;
    action "char";
    changed text;
    stays bool;
    restricts bool;
    passing text;
    period name;
BEGIN
    IF op = 'UPDATE' AND moment = 'BEFORE' THEN
        EXECUTE format('SELECT %s FROM (SELECT ($1).*) n', pg_get_partition_constraintdef(referenced)) INTO stays USING new_row;
        IF stays IS NOT FALSE THEN
            RETURN NULL;
        END IF;
    END IF;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        -- A period archived since our snapshot is hot in none of our reads: 40001 instead of overlooking its rows.
        SELECT * INTO managed FROM frostline.tables t WHERE t.id = table_id FOR SHARE;
    ELSE
        SELECT * INTO managed FROM frostline.tables t WHERE t.id = table_id;
    END IF;
    SELECT c.* INTO found_fk FROM pg_constraint c
    WHERE c.conrelid = managed.hot AND c.contype = 'f' AND c.conname = constraint_name AND c.conparentid = 0;
    IF managed.snapshot_id IS NULL OR found_fk.oid IS NULL THEN
        RETURN NULL;
    END IF;
    IF op = 'TRUNCATE' THEN
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
    SELECT a.attname INTO period
    FROM pg_partitioned_table p JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0]
    WHERE p.partrelid = managed.relation;
    cold := format('%s AND c.%I OPERATOR(pg_catalog.<) %L', refers, period, managed.seam);
    moves := op = 'DELETE' AND (SELECT c.relispartition FROM pg_class c WHERE c.oid = referenced);
    IF moment = 'BEFORE' OR moves THEN
        refers := cold;
    END IF;
    IF moment = 'BEFORE' THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %s c WHERE %s)', managed.relation, refers) INTO broken USING old_row;
        IF broken THEN
            RAISE EXCEPTION USING ERRCODE = '0A000',
                MESSAGE = format('a row of %s that cold rows of %s refer to cannot get a key that belongs into another partition',
                                 found_fk.confrelid::regclass, managed.relation),
                HINT = 'Nothing was changed. Insert the row with its new key, let the others refer to it, and delete the old one.';
        END IF;
        RETURN NULL;
    END IF;
    action := CASE op WHEN 'DELETE' THEN found_fk.confdeltype ELSE found_fk.confupdtype END;
    -- Deleted and inserted again, which only NO ACTION looks at, or moved to another partition, which is a DELETE to us:
    -- nothing is left without its referent.
    IF action = 'a' OR moves THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %s p WHERE %s)', found_fk.confrelid::regclass, stands) INTO broken USING old_row;
        IF broken THEN
            RETURN NULL;
        END IF;
    END IF;
    IF action = 'c' AND op = 'DELETE' THEN
        RETURN format('DELETE FROM %s c WHERE %s', managed.relation, refers);
    ELSIF action IN ('c', 'n', 'd') THEN
        SELECT string_agg(format('%I = %s', fa.attname, CASE action WHEN 'n' THEN 'NULL' WHEN 'd' THEN 'DEFAULT'
                                                                    ELSE format('($2).%I', pa.attname) END), ', ' ORDER BY k.place)
        INTO changed
        FROM unnest(found_fk.conkey, found_fk.confkey) WITH ORDINALITY AS k (fk, pk, place)
        JOIN pg_attribute fa ON fa.attrelid = found_fk.conrelid AND fa.attnum = k.fk
        JOIN pg_attribute pa ON pa.attrelid = found_fk.confrelid AND pa.attnum = k.pk
        WHERE op <> 'DELETE' OR found_fk.confdelsetcols IS NULL OR k.fk = ANY (found_fk.confdelsetcols);
        RETURN format('UPDATE %s c SET %s WHERE %s', managed.relation, changed, refers);
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s c WHERE %s)', managed.relation, refers) INTO broken USING old_row;
    IF broken THEN
        -- The statement that has removed the row may have changed those that refer to it as well. What it has changed is
        -- stored by a trigger that this fires, if it is not yet, and then it is seen.
        SELECT format('UPDATE %s SET %I = NULL WHERE false', a.attrelid::regclass, a.attname) INTO passing
        FROM pg_attribute a
        WHERE a.attrelid = to_regclass(format('frostline_delta.references_%s_1', table_id)) AND a.attnum = 1;
        IF passing IS NOT NULL THEN
            EXECUTE passing;
            EXECUTE format('SELECT EXISTS (SELECT FROM %s c WHERE %s)', managed.relation, refers) INTO broken USING old_row;
        END IF;
    END IF;
    IF broken THEN
        EXECUTE format('SELECT concat_ws('', '', %s) FROM (SELECT ($1).*) p',
                       (SELECT string_agg('p.' || quote_ident(pa.attname), ', ' ORDER BY k.place)
                        FROM unnest(found_fk.confkey) WITH ORDINALITY AS k (pk, place)
                        JOIN pg_attribute pa ON pa.attrelid = found_fk.confrelid AND pa.attnum = k.pk)) INTO key USING old_row;
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
REVOKE EXECUTE ON FUNCTION frostline.cold_references_action(text, text, oid, bigint, text, record, record) FROM PUBLIC;

-- Triggers of the registered table that the statement fires run with the session's search_path, as those do that a foreign
-- key of Postgres's own fires. So this function has none of its own, and each name and operator in it is qualified. Postgres
-- would run them as the table's owner: where we are somebody else, who may do more, they are given no search_path to be led by.
CREATE OR REPLACE FUNCTION frostline.keep_cold_references() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET row_security = off AS $$
DECLARE
    statement text;
    said text;
    path text;
BEGIN
    statement := frostline.cold_references_action(
        tg_op, tg_when, tg_relid, tg_argv[0]::pg_catalog.int8, tg_argv[1], OLD, NEW);
    IF statement IS NULL THEN
        RETURN NEW;
    END IF;
    -- It is nobody's own statement, whatever the session says of those.
    said := pg_catalog.current_setting('frostline.strict', true);
    IF said IS NOT NULL THEN
        PERFORM pg_catalog.set_config('frostline.strict', 'off', true);
    END IF;
    IF NOT EXISTS (SELECT FROM frostline.tables t JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) t.relation
                   WHERE t.id OPERATOR(pg_catalog.=) tg_argv[0]::pg_catalog.int8
                     AND pg_catalog.pg_get_userbyid(c.relowner) OPERATOR(pg_catalog.=) current_user) THEN
        path := pg_catalog.current_setting('search_path');
        PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    END IF;
    EXECUTE statement USING OLD, NEW;
    IF path IS NOT NULL THEN
        PERFORM pg_catalog.set_config('search_path', path, true);
    END IF;
    IF said IS NOT NULL THEN
        PERFORM pg_catalog.set_config('frostline.strict', said, true);
    END IF;
    RETURN NULL;
END $$;

-- What new cold rows refer to stays for a while in tables of ours with foreign keys (delta/collect.py), for transactions that
-- do not see the rows: their snapshot, or the gateway's, was taken before. When the row that is referred to goes away, Postgres
-- sets to NULL what it finds there now. In REPEATABLE READ, finding what the transaction cannot see is a serialization failure.
-- In READ COMMITTED it is not: there this asks whether the gateway can.
CREATE FOREIGN TABLE frostline.call_seen (argument text, answer text)
    SERVER "frostline gateway (frostline up starts it)" OPTIONS (schema_name 'frostline call', table_name 'seen');

CREATE FUNCTION frostline.refuse_unseen() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    writer text := OLD._xid;
    seen text;
BEGIN
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
        OR OLD._xid = pg_current_xact_id()
        OR OLD._xid >= pg_snapshot_xmax(pg_current_snapshot())  -- of another server: this one was restored from a dump
        OR current_setting('frostline.seen', true) = writer THEN
        RETURN NEW;
    END IF;
    DELETE FROM frostline.call_seen c WHERE c.argument = writer RETURNING c.answer INTO seen;
    IF seen IS DISTINCT FROM 'yes' THEN
        RAISE EXCEPTION USING ERRCODE = '40001',
            MESSAGE = format('could not serialize access to cold rows of %s due to concurrent update', tg_argv[0]),
            HINT = 'Nothing was changed. Retry the transaction.';
    END IF;
    PERFORM set_config('frostline.seen', writer, true);
    RETURN NEW;
END $$;

-- These tables, by the number of the key. Those of before had one for all keys, which has none. A delta may be called so too.
CREATE FUNCTION frostline.passing_tables(id bigint) RETURNS TABLE (number int, passing oid)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT substring(c.relname FROM format('^references_%s_([0-9]+)$', id))::int, c.oid
    FROM pg_class c
    WHERE c.relnamespace = 'frostline_delta'::regnamespace AND c.relkind = 'r'
      AND c.relname ~ format('^references_%s(_[0-9]+)?$', id)
      AND c.oid NOT IN (SELECT t.delta FROM frostline.tables t)
$$;

CREATE FUNCTION frostline.drop_references(id bigint) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    passing oid;
BEGIN
    FOR passing IN SELECT p.passing FROM frostline.passing_tables(id) p LOOP
        EXECUTE format('DROP TABLE %s', passing::regclass);
    END LOOP;
END $$;

-- What no snapshot is older than has been of use; nobody is waited for.
CREATE FUNCTION frostline.forget_references(id bigint) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    oldest int := (SELECT max(age(s.xid)) FROM (
        SELECT unnest(ARRAY[a.backend_xmin, a.backend_xid]) AS xid FROM pg_stat_activity a
        UNION ALL SELECT p.transaction FROM pg_prepared_xacts p) s);
    passing oid;
    found bigint;
    forgotten bigint := 0;
BEGIN
    FOR passing IN SELECT p.passing FROM frostline.passing_tables(id) p LOOP
        EXECUTE format('DELETE FROM %1$s r WHERE r.ctid = ANY (ARRAY(SELECT o.ctid FROM %1$s o WHERE age(o.xmin) > $1'
                       ' FOR UPDATE SKIP LOCKED))', passing::regclass) USING oldest;
        GET DIAGNOSTICS found = ROW_COUNT;
        forgotten := forgotten + found;
    END LOOP;
    RETURN forgotten;
END $$;
