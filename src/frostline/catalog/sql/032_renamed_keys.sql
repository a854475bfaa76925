-- A foreign key that was renamed, or made again under another name, is looked after like before.

-- That which a trigger on the referenced table stands for: of its name, or one that no trigger there names, in order.
CREATE FUNCTION frostline.guarded_key(table_id bigint, hot oid, referenced oid, constraint_name text) RETURNS oid
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    -- One of the same name may have come to refer to another table: this one's rows may go then.
    WITH keys AS (
        SELECT c.oid, c.conname FROM pg_constraint c WHERE c.conrelid = hot AND c.contype = 'f' AND c.conparentid = 0
          AND c.confrelid IN (SELECT referenced UNION SELECT relid FROM pg_partition_ancestors(referenced))
    ), named AS (
        SELECT DISTINCT convert_from(substring(g.tgargs FROM p.at + 1 FOR length(g.tgargs) - p.at - 1), 'UTF8') AS conname
        FROM pg_trigger g CROSS JOIN LATERAL (SELECT position('\x00'::bytea IN g.tgargs) AS at) p
        WHERE g.tgfoid = 'frostline.keep_cold_references()'::regprocedure AND g.tgparentid = 0
          AND g.tgrelid IN (SELECT referenced UNION SELECT relid FROM pg_partition_ancestors(referenced))
          AND substring(g.tgargs FROM 1 FOR p.at - 1) = convert_to(table_id::text, 'UTF8')
    )
    SELECT coalesce((SELECT k.oid FROM keys k WHERE k.conname = constraint_name), (
        SELECT k.oid
        FROM (SELECT k.oid, row_number() OVER (ORDER BY k.oid) AS place FROM keys k
              WHERE k.conname::text NOT IN (SELECT n.conname FROM named n)) k
        JOIN (SELECT n.conname, row_number() OVER (ORDER BY n.conname) AS place FROM named n
              WHERE n.conname NOT IN (SELECT k.conname::text FROM keys k)) n USING (place)
        WHERE n.conname = constraint_name))
$$;

CREATE OR REPLACE FUNCTION frostline.cold_references_action(
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
    WHERE c.oid = frostline.guarded_key(table_id, managed.hot, referenced, constraint_name);
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
