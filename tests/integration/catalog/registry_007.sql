SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA frostline;
COMMENT ON SCHEMA frostline IS 'Frostline: the registry of tables whose old rows live in an Iceberg lake';
CREATE SCHEMA frostline_delta;
COMMENT ON SCHEMA frostline_delta IS 'Frostline: changes to cold rows that are not yet in the lake';
CREATE SCHEMA frostline_lake;
COMMENT ON SCHEMA frostline_lake IS 'Frostline: the Iceberg JDBC catalog';
CREATE EXTENSION IF NOT EXISTS postgres_fdw WITH SCHEMA public;
COMMENT ON EXTENSION postgres_fdw IS 'foreign-data wrapper for remote PostgreSQL servers';
CREATE TYPE frostline.explanation AS (
	relation text,
	tier text,
	rows double precision,
	engine text,
	snapshot bigint,
	files integer,
	of_files integer,
	bytes bigint,
	of_bytes bigint,
	delta_rows bigint,
	pushed text,
	kept text,
	why text,
	remote text
);
CREATE TYPE frostline.route AS (
	hot regclass,
	key name,
	key_type text,
	seam text,
	primary_key name[],
	columns name[]
);
CREATE TYPE public.mood AS ENUM (
    'sad',
    'ok'
);
CREATE FUNCTION frostline.collect_1() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
  IF pg_catalog.current_setting('postgres_fdw.application_name', true) IS NOT NULL THEN
    IF EXISTS (SELECT FROM "public".postgres_fdw_get_connections() c
               WHERE c.server_name OPERATOR(pg_catalog.=) 'frostline gateway (frostline up starts it)') THEN
      BEGIN IF frostline."store_1"() OPERATOR(pg_catalog.>) 0 AND pg_catalog.row_security_active(tg_relid) THEN
        RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = 'new cold rows of public.events cannot be checked against policies of row-level security',
          HINT = 'Nothing was changed. A role that bypasses row-level security can write them.';
      END IF; EXCEPTION WHEN connection_exception THEN NULL; END;
    END IF;
  END IF;
  RETURN NULL;
END $$;
CREATE FUNCTION frostline.delete(target regclass, key_values jsonb) RETURNS text
    LANGUAGE plpgsql
    AS $$
DECLARE
    route frostline.route := frostline.route(target);
    condition text := frostline.row_condition(target, route, key_values);
    gone bool;
BEGIN
    EXECUTE pg_catalog.format('WITH gone AS (DELETE FROM %s t WHERE %s RETURNING 1) SELECT count(*) > 0 FROM gone', target, condition)
    INTO gone;
    RETURN CASE WHEN gone THEN frostline.tier_of(target, route, key_values) END;
END $$;
COMMENT ON FUNCTION frostline.delete(target regclass, key_values jsonb) IS 'Delete the row with a primary key; returns the tier it was in, NULL when there is none';
CREATE FUNCTION frostline.explain(statement text) RETURNS SETOF frostline.explanation
    LANGUAGE plpgsql
    AS $$
DECLARE
    plan json;
BEGIN
    FOR plan IN EXECUTE 'EXPLAIN (VERBOSE, FORMAT JSON) ' || statement LOOP
        RETURN QUERY SELECT * FROM frostline.explain_plan(plan::pg_catalog.jsonb);
    END LOOP;
END $$;
COMMENT ON FUNCTION frostline.explain(statement text) IS 'What a statement would read of each tier, and who would evaluate what';
CREATE FUNCTION frostline.explain_plan(plan jsonb) RETURNS SETOF frostline.explanation
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    WITH RECURSIVE nodes (node, place) AS (
        SELECT plan -> 0 -> 'Plan', ARRAY[]::bigint[]
        UNION ALL
        SELECT child.node, n.place || child.number
        FROM nodes n
        CROSS JOIN LATERAL jsonb_array_elements(n.node -> 'Plans') WITH ORDINALITY AS child (node, number)
    ), scans AS (
        SELECT n.node, n.place, to_regclass(format('%I.%I', n.node ->> 'Schema', n.node ->> 'Relation Name')) AS relation
        FROM nodes n
        WHERE n.node ? 'Remote SQL' OR (n.node ? 'Relation Name' AND n.node ->> 'Node Type' LIKE '%Scan')
    ), managed AS (
        SELECT s.*, t.relation AS root, p.foreign_table IS NOT NULL OR s.node ? 'Remote SQL' AS cold,
               frostline.explain_remote(s.node ->> 'Remote SQL') AS said
        FROM scans s
        LEFT JOIN frostline.periods p ON p.foreign_table = s.relation
        LEFT JOIN frostline.tables t ON t.relation IN (SELECT relid FROM pg_partition_ancestors(s.relation))
    ), pruned AS (
        SELECT m.root, (SELECT count(*) FROM pg_partition_tree(m.root) WHERE isleaf) AS leaves,
               count(DISTINCT m.relation) AS kept
        FROM managed m
        WHERE m.root IS NOT NULL
        GROUP BY m.root
    )
    SELECT e.*
    FROM (
        SELECT m.place, row(
            coalesce(m.relation::text, m.node ->> 'Relations', m.node ->> 'Relation Name'),
            CASE WHEN m.cold THEN 'cold' WHEN m.root IS NOT NULL THEN 'hot' ELSE 'plain' END,
            (m.node ->> 'Plan Rows')::float8,
            coalesce(m.said ->> 'engine', CASE WHEN m.cold THEN 'not known' ELSE 'Postgres' END),
            (m.said ->> 'snapshot')::bigint,
            (m.said ->> 'files')::int, (m.said ->> 'of_files')::int,
            (m.said ->> 'bytes')::bigint, (m.said ->> 'of_bytes')::bigint,
            (m.said ->> 'delta_rows')::bigint,
            m.said ->> 'pushed',
            concat_ws(' AND ', m.said ->> 'kept', m.node ->> 'Filter', m.node ->> 'Index Cond'),
            m.said ->> 'why',
            m.node ->> 'Remote SQL'
        )::frostline.explanation AS line
        FROM managed m
        UNION ALL
        SELECT ARRAY[2147483647], row(
            p.root::text, 'pruned', 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
            format('%s of %s partitions are not read', p.leaves - p.kept, p.leaves), NULL
        )::frostline.explanation
        FROM pruned p
        WHERE p.leaves > p.kept
    ) AS found
    CROSS JOIN LATERAL (SELECT (found.line).*) AS e
    ORDER BY found.place
$$;
CREATE FUNCTION frostline.explain_remote(remote text) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    IF NOT frostline.may_explain(remote) THEN
        RETURN jsonb_build_object('why', 'no SELECT on the table itself: not shown');
    END IF;
    RETURN (SELECT c.answer FROM frostline.call_explain c WHERE c.argument = remote)::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN jsonb_build_object('why', sqlerrm);
END $$;
CREATE FUNCTION frostline.keep_cold_references() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $_$
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
END $_$;
COMMENT ON FUNCTION frostline.keep_cold_references() IS 'Trigger on a referenced table: does to cold rows that refer to a row what their foreign key says';
CREATE FUNCTION frostline.may_explain(remote text) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    SELECT coalesce(bool_and(has_any_column_privilege(
               CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role')::name END,
               t.relation, 'SELECT')), false)
    FROM regexp_matches(remote, '"table (\d+)(?: [^"]*)?"\.', 'g') AS named
    LEFT JOIN frostline.tables t ON t.id = named[1]::bigint
$$;
CREATE FUNCTION frostline.move(target regclass, key_values jsonb, new_key text) RETURNS text
    LANGUAGE plpgsql
    AS $_$
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
END $_$;
COMMENT ON FUNCTION frostline.move(target regclass, key_values jsonb, new_key text) IS 'Give the row with a primary key another partition key, whichever tier either lies in; returns the tier it is in now';
CREATE FUNCTION frostline.output(value anyelement) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $_$ SELECT CASE WHEN $1 IS DISTINCT FROM NULL THEN pg_catalog.format('%s', $1) END $_$;
CREATE FUNCTION frostline.pin() RETURNS text
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    exported text;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION USING ERRCODE = '0A000',
            MESSAGE = format('frostline.pin() fixes one snapshot, and a %s transaction has one per statement',
                             upper(current_setting('transaction_isolation'))),
            HINT = 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT frostline.pin();';
    END IF;
    exported := pg_export_snapshot();
    PERFORM c.answer FROM frostline.call_pin c WHERE c.argument = exported;
    RETURN exported;
END $$;
COMMENT ON FUNCTION frostline.pin() IS 'Cold rows are read at this transaction''s own snapshot: hot and cold are then exactly one state of the table';
CREATE FUNCTION frostline.route(target regclass) RETURNS frostline.route
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION frostline.row_condition(target regclass, route frostline.route, key_values jsonb) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $_$
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
END $_$;
CREATE FUNCTION frostline.store_1() RETURNS bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
  found_rows bigint;
  kept_rows bigint;
  new_rows bigint;
  found_batch int;
  said text;  -- a constant to the planner, so that it travels
  computed_at text;
  current_snapshot text;
BEGIN
  WITH held AS MATERIALIZED (SELECT * FROM "frostline_delta"."held_1"),
  kept AS (
    INSERT INTO "frostline_delta"."events_1" ("id", "ts", "customer", "amount", "m", "note", "g", _op, _seq, _prev)
    SELECT "id", "ts", "customer", "amount", "m", "note", "g", held._op, held._seq, held._prev FROM held WHERE held._op <> 'H'
    ON CONFLICT ("id", "ts", _prev) DO NOTHING RETURNING 1
  ), moved AS (
    INSERT INTO "public"."events_hot" ("id", "ts", "customer", "amount", "m", "note") OVERRIDING SYSTEM VALUE SELECT "id", "ts", "customer", "amount", "m", "note" FROM held WHERE held._op = 'H' RETURNING 1
  ), checked AS (INSERT INTO "frostline_delta"."references_1" SELECT "customer" FROM held WHERE held._op = 'U' RETURNING 1)
  SELECT count(*), count(*) FILTER (WHERE held._op = 'H') + (SELECT count(*) FROM kept), max(held._batch),
    count(*) FILTER (WHERE held._op <> 'T')
  INTO found_rows, kept_rows, found_batch, new_rows
  FROM held;
  IF found_rows = 0 THEN
    RETURN 0;
  END IF;
  IF kept_rows <> found_rows THEN
    RAISE EXCEPTION USING ERRCODE = '40001',
      MESSAGE = 'could not serialize access to cold rows of public.events due to concurrent update',
      HINT = 'Nothing was changed. Retry the transaction.';
  END IF;
  DELETE FROM "frostline_delta"."references_1";
  -- Whoever changes the lake waits for us from here on, so the snapshot stays what it is until we commit.
  PERFORM pg_advisory_xact_lock_shared(734621503, 1);
  IF current_setting('transaction_isolation') = 'read committed' THEN
    SELECT coalesce(t.snapshot_id::text, '-') INTO current_snapshot FROM frostline.tables t WHERE t.id = 1;
  ELSE
    -- A plain read would be of our own, older snapshot.
    SELECT coalesce(t.snapshot_id::text, '-') INTO current_snapshot FROM frostline.tables t WHERE t.id = 1 FOR SHARE;
  END IF;
  said := format('%s %s %s', 1, found_batch, found_rows);
  -- One round trip; a SELECT would take three.
  DELETE FROM frostline.call_collected c WHERE c.argument = said RETURNING c.answer INTO computed_at;
  IF computed_at IS DISTINCT FROM current_snapshot THEN
    RAISE EXCEPTION USING ERRCODE = '40001',
      MESSAGE = 'could not serialize access to cold rows of public.events: the lake has changed meanwhile',
      HINT = 'Nothing was changed. Retry the transaction.';
  END IF;
  RETURN new_rows;
END $$;
CREATE FUNCTION frostline.tier_of(target regclass, route frostline.route, key_values jsonb) RETURNS text
    LANGUAGE plpgsql STABLE
    AS $_$
DECLARE
    cold bool;
BEGIN
    EXECUTE pg_catalog.format('SELECT r.%I < %L::%s FROM pg_catalog.jsonb_populate_record(NULL::%s, $1) r',
                              route.key, route.seam, route.key_type, target)
    INTO cold USING key_values;
    RETURN CASE WHEN cold THEN 'cold' ELSE 'hot' END;
END $_$;
CREATE FUNCTION frostline.upsert(target regclass, row_values jsonb) RETURNS text
    LANGUAGE plpgsql
    AS $_$
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
END $_$;
COMMENT ON FUNCTION frostline.upsert(target regclass, row_values jsonb) IS 'Insert a row, or set the given columns of the one with its primary key; returns the tier it is in: hot or cold';
CREATE FUNCTION frostline_delta.archived_1() RETURNS trigger
    LANGUAGE plpgsql
    AS $$BEGIN RAISE EXCEPTION USING MESSAGE = 'this partition of public.events has been archived', ERRCODE = '55000', HINT = 'Nothing was changed. Run the statement again.'; END$$;
CREATE FUNCTION frostline_delta.no_truncate_1() RETURNS trigger
    LANGUAGE plpgsql
    AS $$BEGIN RAISE EXCEPTION USING MESSAGE = 'a partition of public.events on its way to the lake cannot be truncated', ERRCODE = '55006', HINT = 'Nothing was changed. Delete its rows, or truncate it when the archive run is over.'; END$$;
CREATE SERVER "frostline gateway (frostline up starts it)" FOREIGN DATA WRAPPER postgres_fdw OPTIONS (
    application_name 'frostline %c',
    batch_size '1000',
    connect_timeout '10',
    dbname 'f46e461a-1c6d-45c5-8fcd-1c68bb81355b',
    fetch_size '10000',
    host '127.0.0.1',
    keepalives_count '6',
    keepalives_idle '60',
    keepalives_interval '10',
    port '45447',
    truncatable 'false'
);
CREATE USER MAPPING FOR public SERVER "frostline gateway (frostline up starts it)" OPTIONS (
    password 'the-previous-secret',
    "user" 'frostline'
);
CREATE FOREIGN TABLE frostline.call_collected (
    argument text,
    answer text
)
SERVER "frostline gateway (frostline up starts it)"
OPTIONS (
    schema_name 'frostline call',
    table_name 'collected'
);
CREATE FOREIGN TABLE frostline.call_explain (
    argument text,
    answer text
)
SERVER "frostline gateway (frostline up starts it)"
OPTIONS (
    schema_name 'frostline call',
    table_name 'explain'
);
CREATE FOREIGN TABLE frostline.call_pin (
    argument text,
    answer text
)
SERVER "frostline gateway (frostline up starts it)"
OPTIONS (
    schema_name 'frostline call',
    table_name 'pin'
);
SET default_tablespace = '';
SET default_table_access_method = heap;
CREATE TABLE frostline.columns (
    table_id bigint NOT NULL,
    attnum smallint NOT NULL,
    lake_name text NOT NULL
);
CREATE TABLE frostline.expiring (
    table_id bigint NOT NULL,
    snapshot_id bigint NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
COMMENT ON TABLE frostline.expiring IS 'Iceberg snapshots that maintenance removes or has removed';
CREATE TABLE frostline.gateways (
    id uuid NOT NULL,
    host text NOT NULL,
    port integer NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    heartbeat timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
COMMENT ON TABLE frostline.gateways IS 'one row per running gateway; one whose heartbeat is old is dead';
CREATE TABLE frostline.installation (
    only_one boolean DEFAULT true NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    installed_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT installation_only_one_check CHECK (only_one)
);
CREATE TABLE frostline.migrations (
    number integer NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE frostline.operations (
    id bigint NOT NULL,
    table_id bigint NOT NULL,
    kind text NOT NULL,
    leaf text NOT NULL,
    lower text,
    upper text NOT NULL,
    state text DEFAULT 'running'::text NOT NULL,
    snapshot_id bigint,
    metadata_location text,
    rows bigint,
    bytes bigint,
    error text,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    finished_at timestamp with time zone,
    captured jsonb,
    waiting_since timestamp with time zone,
    waits_for jsonb,
    cleaned_at timestamp with time zone,
    folded bigint[],
    CONSTRAINT operations_kind_check CHECK ((kind = ANY (ARRAY['archive'::text, 'coalesce'::text, 'fold'::text]))),
    CONSTRAINT operations_state_check CHECK ((state = ANY (ARRAY['running'::text, 'done'::text, 'failed'::text])))
);
COMMENT ON COLUMN frostline.operations.snapshot_id IS 'the Iceberg snapshot the operation made, readers see it once it is in frostline.tables';
COMMENT ON COLUMN frostline.operations.captured IS 'the leaf as the capture left it: while it is still so and the operation is not done, a later run can go on';
COMMENT ON COLUMN frostline.operations.waits_for IS 'who holds the locks that a running operation wants: a list of sessions';
COMMENT ON COLUMN frostline.operations.cleaned_at IS 'when the files a failed operation may have left were looked for';
COMMENT ON COLUMN frostline.operations.folded IS 'of a fold: the versions it read, until they are removed from the delta; with them a later run can finish it';
ALTER TABLE frostline.operations ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME frostline.operations_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE frostline.periods (
    table_id bigint NOT NULL,
    lower text,
    upper text NOT NULL,
    foreign_table regclass NOT NULL,
    rows bigint DEFAULT 0 NOT NULL,
    bytes bigint DEFAULT 0 NOT NULL,
    files integer DEFAULT 0 NOT NULL,
    operation_id bigint,
    digest jsonb,
    verified_at timestamp with time zone,
    alarm text
);
COMMENT ON TABLE frostline.periods IS 'the foreign partitions: one per archived period, and the one below the oldest';
COMMENT ON COLUMN frostline.periods.digest IS 'rows of the period in the lake, and of each column (by number) how many values and the sum of their hashes';
COMMENT ON COLUMN frostline.periods.alarm IS 'what `frostline verify` found wrong; NULL: nothing';
CREATE TABLE frostline.pins (
    gateway uuid NOT NULL,
    table_id bigint NOT NULL,
    snapshot_id bigint NOT NULL,
    metadata_location text NOT NULL,
    pinned_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
COMMENT ON TABLE frostline.pins IS 'Iceberg snapshots that sessions read: not to be removed while their gateway is alive';
CREATE TABLE frostline.steps (
    operation_id bigint NOT NULL,
    number integer NOT NULL,
    name text NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    finished_at timestamp with time zone,
    rows bigint,
    bytes bigint,
    error text,
    attempts integer DEFAULT 1 NOT NULL
);
CREATE TABLE frostline.tables (
    id bigint NOT NULL,
    relation regclass NOT NULL,
    hot regclass NOT NULL,
    delta regclass NOT NULL,
    hot_for text NOT NULL,
    lake_namespace text NOT NULL,
    lake_table text NOT NULL,
    seam text,
    snapshot_id bigint,
    metadata_location text,
    shape jsonb NOT NULL,
    registered_at timestamp with time zone DEFAULT now() NOT NULL,
    cold_fk text DEFAULT 'check'::text NOT NULL,
    premake integer DEFAULT 2 NOT NULL,
    coalesce_to text,
    coalesce_after text,
    cold_duplicates text DEFAULT 'error'::text NOT NULL,
    merge_mode text DEFAULT 'copy-on-write'::text NOT NULL,
    CONSTRAINT tables_check CHECK (((snapshot_id IS NULL) = (metadata_location IS NULL))),
    CONSTRAINT tables_check1 CHECK (((coalesce_to IS NULL) = (coalesce_after IS NULL))),
    CONSTRAINT tables_cold_duplicates_check CHECK ((cold_duplicates = ANY (ARRAY['error'::text, 'upsert'::text]))),
    CONSTRAINT tables_cold_fk_check CHECK ((cold_fk = ANY (ARRAY['check'::text, 'none'::text]))),
    CONSTRAINT tables_merge_mode_check CHECK ((merge_mode = ANY (ARRAY['copy-on-write'::text, 'merge-on-read'::text]))),
    CONSTRAINT tables_premake_check CHECK (((premake >= 0) AND (premake <= 1000)))
);
COMMENT ON COLUMN frostline.tables.hot IS 'the partition that holds every hot leaf';
COMMENT ON COLUMN frostline.tables.hot_for IS 'how long rows stay hot: an interval, or a width for an integer key';
COMMENT ON COLUMN frostline.tables.seam IS 'keys below it are cold; NULL: none is';
COMMENT ON COLUMN frostline.tables.snapshot_id IS 'the Iceberg snapshot every reader sees; NULL: nothing was archived yet';
COMMENT ON COLUMN frostline.tables.metadata_location IS 'the Iceberg metadata file that describes that snapshot';
COMMENT ON COLUMN frostline.tables.shape IS 'constraints and partitions as they were before registration';
COMMENT ON COLUMN frostline.tables.cold_fk IS 'check: rows that cold rows refer to cannot be deleted; none: they can';
COMMENT ON COLUMN frostline.tables.premake IS 'how many partitions are kept ready after the current one';
COMMENT ON COLUMN frostline.tables.coalesce_to IS 'the width old periods are joined to; NULL: they stay as they are';
COMMENT ON COLUMN frostline.tables.coalesce_after IS 'how old a period must be for that';
COMMENT ON COLUMN frostline.tables.cold_duplicates IS 'a cold INSERT of a key that is there: error, or upsert (the newest wins)';
COMMENT ON COLUMN frostline.tables.merge_mode IS 'how a fold changes the lake: copy-on-write rewrites the files concerned, merge-on-read adds files of deletes';
CREATE VIEW frostline.waits AS
 SELECT (t.relation)::text AS "table",
    o.id AS operation,
    o.leaf,
    s.name AS step,
    o.waiting_since,
    b.pid,
    b.since,
    b.state,
    b.relation,
    b.mode,
    b.query
   FROM (((frostline.operations o
     JOIN frostline.tables t ON ((t.id = o.table_id)))
     LEFT JOIN LATERAL ( SELECT steps.name
           FROM frostline.steps
          WHERE (steps.operation_id = o.id)
          ORDER BY steps.number DESC
         LIMIT 1) s ON (true))
     CROSS JOIN LATERAL jsonb_to_recordset(o.waits_for) b(pid integer, since timestamp with time zone, state text, relation text, mode text, query text))
  WHERE ((o.state = 'running'::text) AND (o.waiting_since IS NOT NULL));
COMMENT ON VIEW frostline.waits IS 'running operations that wait for a lock, and who holds it';
CREATE VIEW frostline.status AS
 SELECT (t.relation)::text AS "table",
    t.hot_for,
    COALESCE(t.seam, '-'::text) AS cold_below,
    hot.leaves AS hot_partitions,
    pg_size_pretty(hot.bytes) AS heap,
    cold.periods AS cold_periods,
    cold.rows AS cold_rows,
    pg_size_pretty(cold.bytes) AS lake,
    t.snapshot_id AS iceberg_snapshot,
    COALESCE((((((last.kind || ' of '::text) || last.leaf) || ': '::text) || last.state) || COALESCE((' at '::text || last.step), ''::text)), '-'::text) AS last_operation,
    waits.text AS waits_for,
    cold.alarm
   FROM ((((frostline.tables t
     CROSS JOIN LATERAL ( SELECT count(*) FILTER (WHERE pg_partition_tree.isleaf) AS leaves,
            (COALESCE(sum(pg_total_relation_size(pg_partition_tree.relid)), (0)::numeric))::bigint AS bytes
           FROM pg_partition_tree(t.hot) pg_partition_tree(relid, parentrelid, isleaf, level)) hot)
     CROSS JOIN LATERAL ( SELECT count(*) AS periods,
            (COALESCE(sum(p.rows), (0)::numeric))::bigint AS rows,
            (COALESCE(sum(p.bytes), (0)::numeric))::bigint AS bytes,
            string_agg((((p.foreign_table)::text || ': '::text) || p.alarm), '; '::text ORDER BY p.upper) AS alarm
           FROM frostline.periods p
          WHERE (p.table_id = t.id)) cold)
     LEFT JOIN LATERAL ( SELECT o.kind,
            o.leaf,
            o.state,
                CASE
                    WHEN (o.state <> 'done'::text) THEN s.name
                    ELSE NULL::text
                END AS step
           FROM (frostline.operations o
             LEFT JOIN frostline.steps s ON ((s.operation_id = o.id)))
          WHERE (o.table_id = t.id)
          ORDER BY o.id DESC, s.number DESC
         LIMIT 1) last ON (true))
     LEFT JOIN LATERAL ( SELECT string_agg(format('pid %s (%s since %s): %s'::text, w.pid, w.state, to_char(w.since, 'HH24:MI:SS'::text), w.query), '; '::text ORDER BY w.since) AS text
           FROM frostline.waits w
          WHERE (w."table" = (t.relation)::text)) waits ON (true));
ALTER TABLE frostline.tables ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME frostline.tables_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE SEQUENCE frostline.version
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE frostline_delta.events_1 (
    id bigint,
    ts timestamp with time zone,
    customer integer,
    amount numeric(12,2),
    m public.mood,
    note text,
    g bigint,
    _op "char" NOT NULL,
    _seq bigint NOT NULL,
    _prev bigint NOT NULL,
    CONSTRAINT events_1__op_check CHECK ((_op = ANY (ARRAY['U'::"char", 'T'::"char"])))
);
CREATE FOREIGN TABLE frostline_delta.held_1 (
    id bigint,
    ts timestamp with time zone,
    customer integer,
    amount numeric(12,2),
    m public.mood,
    note text,
    g bigint,
    _op "char",
    _seq bigint,
    _prev bigint,
    _batch integer
)
SERVER "frostline gateway (frostline up starts it)"
OPTIONS (
    schema_name 'frostline held',
    table_name '1'
);
CREATE TABLE frostline_delta.references_1 (
    customer integer
);
CREATE TABLE frostline_lake.iceberg_namespace_properties (
    catalog_name character varying(255) NOT NULL,
    namespace character varying(255) NOT NULL,
    property_key character varying(255) NOT NULL,
    property_value character varying(1000)
);
CREATE TABLE frostline_lake.iceberg_tables (
    catalog_name character varying(255) NOT NULL,
    table_namespace character varying(255) NOT NULL,
    table_name character varying(255) NOT NULL,
    metadata_location character varying(1000),
    previous_metadata_location character varying(1000),
    iceberg_type character varying(5)
);
CREATE TABLE public.customers (
    id integer NOT NULL,
    name text
);
CREATE TABLE public.events (
    id bigint NOT NULL,
    ts timestamp with time zone NOT NULL,
    customer integer,
    amount numeric(12,2),
    m public.mood,
    note text,
    g bigint GENERATED ALWAYS AS ((id * 2)) STORED,
    CONSTRAINT events_amount_check CHECK ((amount >= (0)::numeric))
)
PARTITION BY RANGE (ts);
ALTER TABLE public.events ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
    SEQUENCE NAME public.events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.events_hot (
    id bigint DEFAULT nextval('public.events_id_seq'::regclass) NOT NULL,
    ts timestamp with time zone NOT NULL,
    customer integer,
    amount numeric(12,2),
    m public.mood,
    note text,
    g bigint GENERATED ALWAYS AS ((id * 2)) STORED,
    CONSTRAINT events_amount_check CHECK ((amount >= (0)::numeric))
)
PARTITION BY RANGE (ts);
CREATE TABLE public.events_01 (
    id bigint DEFAULT nextval('public.events_id_seq'::regclass) NOT NULL,
    ts timestamp with time zone NOT NULL,
    customer integer,
    amount numeric(12,2),
    m public.mood,
    note text,
    g bigint GENERATED ALWAYS AS ((id * 2)) STORED,
    CONSTRAINT events_amount_check CHECK ((amount >= (0)::numeric)),
    CONSTRAINT frostline_bound CHECK ((ts >= '2024-01-01 00:00:00+00'::timestamp with time zone))
);
CREATE TABLE public.events_02 (
    id bigint DEFAULT nextval('public.events_id_seq'::regclass) NOT NULL,
    ts timestamp with time zone NOT NULL,
    customer integer,
    amount numeric(12,2),
    m public.mood,
    note text,
    g bigint GENERATED ALWAYS AS ((id * 2)) STORED,
    CONSTRAINT events_amount_check CHECK ((amount >= (0)::numeric)),
    CONSTRAINT frostline_bound CHECK ((ts >= '2024-02-01 00:00:00+00'::timestamp with time zone))
);
CREATE TABLE public.events_03 (
    id bigint DEFAULT nextval('public.events_id_seq'::regclass) NOT NULL,
    ts timestamp with time zone NOT NULL,
    customer integer,
    amount numeric(12,2),
    m public.mood,
    note text,
    g bigint GENERATED ALWAYS AS ((id * 2)) STORED,
    CONSTRAINT events_amount_check CHECK ((amount >= (0)::numeric)),
    CONSTRAINT frostline_bound CHECK ((ts >= '2024-03-01 00:00:00+00'::timestamp with time zone))
);
CREATE FOREIGN TABLE public.events_before (
    id bigint NOT NULL,
    ts timestamp with time zone NOT NULL,
    customer integer,
    amount numeric(12,2),
    m public.mood,
    note text,
    g bigint GENERATED ALWAYS AS ((id * 2)) STORED,
    CONSTRAINT events_amount_check CHECK ((amount >= (0)::numeric))
)
SERVER "frostline gateway (frostline up starts it)"
OPTIONS (
    schema_name 'table 1',
    table_name 'from MINVALUE to 2024-01-01 00:00:00+00'
);
ALTER TABLE ONLY public.events_hot ATTACH PARTITION public.events_01 FOR VALUES FROM ('2024-01-01 00:00:00+00') TO ('2024-02-01 00:00:00+00');
ALTER TABLE ONLY public.events_hot ATTACH PARTITION public.events_02 FOR VALUES FROM ('2024-02-01 00:00:00+00') TO ('2024-03-01 00:00:00+00');
ALTER TABLE ONLY public.events_hot ATTACH PARTITION public.events_03 FOR VALUES FROM ('2024-03-01 00:00:00+00') TO ('2100-01-01 00:00:00+00');
ALTER TABLE ONLY public.events ATTACH PARTITION public.events_before FOR VALUES FROM (MINVALUE) TO ('2024-01-01 00:00:00+00');
ALTER TABLE ONLY public.events ATTACH PARTITION public.events_hot FOR VALUES FROM ('2024-01-01 00:00:00+00') TO (MAXVALUE);
INSERT INTO frostline.columns VALUES
	(1, 1, 'id'),
	(1, 2, 'ts'),
	(1, 3, 'customer'),
	(1, 4, 'amount'),
	(1, 5, 'm'),
	(1, 6, 'note'),
	(1, 7, 'g');
INSERT INTO frostline.gateways VALUES
	('23ac64fa-c0f4-46fb-8368-6454f3115849', '127.0.0.1', 45447, '2026-11-16 10:17:12.306821+00', '2026-11-16 10:17:12.306821+00');
INSERT INTO frostline.installation VALUES
	(true, 'f46e461a-1c6d-45c5-8fcd-1c68bb81355b', '2026-11-16 10:17:11.494622+00');
INSERT INTO frostline.migrations VALUES
	(1, '001_registry.sql', '2026-11-16 10:17:11.494622+00'),
	(2, '002_gateways.sql', '2026-11-16 10:17:11.494622+00'),
	(3, '003_explain.sql', '2026-11-16 10:17:11.494622+00'),
	(4, '004_recovery.sql', '2026-11-16 10:17:11.494622+00'),
	(5, '005_tables.sql', '2026-11-16 10:17:11.494622+00'),
	(6, '006_writes.sql', '2026-11-16 10:17:11.494622+00'),
	(7, '007_fold.sql', '2026-11-16 10:17:11.494622+00');
INSERT INTO frostline.periods VALUES
	(1, NULL, '2024-01-01 00:00:00+00', 'public.events_before', 0, 0, 0, NULL, NULL, NULL, NULL);
INSERT INTO frostline.tables OVERRIDING SYSTEM VALUE VALUES
	(1, 'public.events', 'public.events_hot', 'frostline_delta.events_1', '3 months', 'public', 'events', '2024-01-01 00:00:00+00', NULL, NULL, '{"partitions": [{"name": "events_01", "range": "from 2024-01-01 00:00:00+00 to 2024-02-01 00:00:00+00", "schema": "public"}, {"name": "events_02", "range": "from 2024-02-01 00:00:00+00 to 2024-03-01 00:00:00+00", "schema": "public"}, {"name": "events_03", "range": "from 2024-03-01 00:00:00+00 to 2100-01-01 00:00:00+00", "schema": "public"}], "constraints": [{"name": "events_pkey", "comment": null, "definition": "PRIMARY KEY (id, ts)"}, {"name": "events_customer_fkey", "comment": null, "definition": "FOREIGN KEY (customer) REFERENCES public.customers(id)"}], "replica_identity": []}', '2026-11-16 10:17:12.937789+00', 'check', 2, 'year', '2 years', 'error', 'copy-on-write');
INSERT INTO public.customers VALUES
	(0, 'c0'),
	(1, 'c1'),
	(2, 'c2'),
	(3, 'c3'),
	(4, 'c4'),
	(5, 'c5'),
	(6, 'c6'),
	(7, 'c7'),
	(8, 'c8'),
	(9, 'c9');
INSERT INTO public.events_01 VALUES
	(1, '2024-01-01 00:00:00+00', 0, 0.00, 'ok', 'n0', DEFAULT),
	(2, '2024-01-01 06:00:00+00', 1, 1.00, 'ok', 'n1', DEFAULT),
	(3, '2024-01-01 12:00:00+00', 2, 2.00, 'ok', 'n2', DEFAULT),
	(4, '2024-01-01 18:00:00+00', 3, 3.00, 'ok', 'n3', DEFAULT),
	(5, '2024-01-02 00:00:00+00', 4, 4.00, 'ok', 'n4', DEFAULT),
	(6, '2024-01-02 06:00:00+00', 5, 5.00, 'ok', 'n5', DEFAULT),
	(7, '2024-01-02 12:00:00+00', 6, 6.00, 'ok', 'n6', DEFAULT),
	(8, '2024-01-02 18:00:00+00', 7, 7.00, 'ok', 'n7', DEFAULT),
	(9, '2024-01-03 00:00:00+00', 8, 8.00, 'ok', 'n8', DEFAULT),
	(10, '2024-01-03 06:00:00+00', 9, 9.00, 'ok', 'n9', DEFAULT),
	(11, '2024-01-03 12:00:00+00', 0, 10.00, 'ok', 'n10', DEFAULT),
	(12, '2024-01-03 18:00:00+00', 1, 11.00, 'ok', 'n11', DEFAULT),
	(13, '2024-01-04 00:00:00+00', 2, 12.00, 'ok', 'n12', DEFAULT),
	(14, '2024-01-04 06:00:00+00', 3, 13.00, 'ok', 'n13', DEFAULT),
	(15, '2024-01-04 12:00:00+00', 4, 14.00, 'ok', 'n14', DEFAULT),
	(16, '2024-01-04 18:00:00+00', 5, 15.00, 'ok', 'n15', DEFAULT),
	(17, '2024-01-05 00:00:00+00', 6, 16.00, 'ok', 'n16', DEFAULT),
	(18, '2024-01-05 06:00:00+00', 7, 17.00, 'ok', 'n17', DEFAULT),
	(19, '2024-01-05 12:00:00+00', 8, 18.00, 'ok', 'n18', DEFAULT),
	(20, '2024-01-05 18:00:00+00', 9, 19.00, 'ok', 'n19', DEFAULT),
	(21, '2024-01-06 00:00:00+00', 0, 20.00, 'ok', 'n20', DEFAULT),
	(22, '2024-01-06 06:00:00+00', 1, 21.00, 'ok', 'n21', DEFAULT),
	(23, '2024-01-06 12:00:00+00', 2, 22.00, 'ok', 'n22', DEFAULT),
	(24, '2024-01-06 18:00:00+00', 3, 23.00, 'ok', 'n23', DEFAULT),
	(25, '2024-01-07 00:00:00+00', 4, 24.00, 'ok', 'n24', DEFAULT),
	(26, '2024-01-07 06:00:00+00', 5, 25.00, 'ok', 'n25', DEFAULT),
	(27, '2024-01-07 12:00:00+00', 6, 26.00, 'ok', 'n26', DEFAULT),
	(28, '2024-01-07 18:00:00+00', 7, 27.00, 'ok', 'n27', DEFAULT),
	(29, '2024-01-08 00:00:00+00', 8, 28.00, 'ok', 'n28', DEFAULT),
	(30, '2024-01-08 06:00:00+00', 9, 29.00, 'ok', 'n29', DEFAULT),
	(31, '2024-01-08 12:00:00+00', 0, 30.00, 'ok', 'n30', DEFAULT),
	(32, '2024-01-08 18:00:00+00', 1, 31.00, 'ok', 'n31', DEFAULT),
	(33, '2024-01-09 00:00:00+00', 2, 32.00, 'ok', 'n32', DEFAULT),
	(34, '2024-01-09 06:00:00+00', 3, 33.00, 'ok', 'n33', DEFAULT),
	(35, '2024-01-09 12:00:00+00', 4, 34.00, 'ok', 'n34', DEFAULT),
	(36, '2024-01-09 18:00:00+00', 5, 35.00, 'ok', 'n35', DEFAULT),
	(37, '2024-01-10 00:00:00+00', 6, 36.00, 'ok', 'n36', DEFAULT),
	(38, '2024-01-10 06:00:00+00', 7, 37.00, 'ok', 'n37', DEFAULT),
	(39, '2024-01-10 12:00:00+00', 8, 38.00, 'ok', 'n38', DEFAULT),
	(40, '2024-01-10 18:00:00+00', 9, 39.00, 'ok', 'n39', DEFAULT),
	(41, '2024-01-11 00:00:00+00', 0, 40.00, 'ok', 'n40', DEFAULT),
	(42, '2024-01-11 06:00:00+00', 1, 41.00, 'ok', 'n41', DEFAULT),
	(43, '2024-01-11 12:00:00+00', 2, 42.00, 'ok', 'n42', DEFAULT),
	(44, '2024-01-11 18:00:00+00', 3, 43.00, 'ok', 'n43', DEFAULT),
	(45, '2024-01-12 00:00:00+00', 4, 44.00, 'ok', 'n44', DEFAULT),
	(46, '2024-01-12 06:00:00+00', 5, 45.00, 'ok', 'n45', DEFAULT),
	(47, '2024-01-12 12:00:00+00', 6, 46.00, 'ok', 'n46', DEFAULT),
	(48, '2024-01-12 18:00:00+00', 7, 47.00, 'ok', 'n47', DEFAULT),
	(49, '2024-01-13 00:00:00+00', 8, 48.00, 'ok', 'n48', DEFAULT),
	(50, '2024-01-13 06:00:00+00', 9, 49.00, 'ok', 'n49', DEFAULT),
	(51, '2024-01-13 12:00:00+00', 0, 50.00, 'ok', 'n50', DEFAULT),
	(52, '2024-01-13 18:00:00+00', 1, 51.00, 'ok', 'n51', DEFAULT),
	(53, '2024-01-14 00:00:00+00', 2, 52.00, 'ok', 'n52', DEFAULT),
	(54, '2024-01-14 06:00:00+00', 3, 53.00, 'ok', 'n53', DEFAULT),
	(55, '2024-01-14 12:00:00+00', 4, 54.00, 'ok', 'n54', DEFAULT),
	(56, '2024-01-14 18:00:00+00', 5, 55.00, 'ok', 'n55', DEFAULT),
	(57, '2024-01-15 00:00:00+00', 6, 56.00, 'ok', 'n56', DEFAULT),
	(58, '2024-01-15 06:00:00+00', 7, 57.00, 'ok', 'n57', DEFAULT),
	(59, '2024-01-15 12:00:00+00', 8, 58.00, 'ok', 'n58', DEFAULT),
	(60, '2024-01-15 18:00:00+00', 9, 59.00, 'ok', 'n59', DEFAULT),
	(61, '2024-01-16 00:00:00+00', 0, 60.00, 'ok', 'n60', DEFAULT),
	(62, '2024-01-16 06:00:00+00', 1, 61.00, 'ok', 'n61', DEFAULT),
	(63, '2024-01-16 12:00:00+00', 2, 62.00, 'ok', 'n62', DEFAULT),
	(64, '2024-01-16 18:00:00+00', 3, 63.00, 'ok', 'n63', DEFAULT),
	(65, '2024-01-17 00:00:00+00', 4, 64.00, 'ok', 'n64', DEFAULT),
	(66, '2024-01-17 06:00:00+00', 5, 65.00, 'ok', 'n65', DEFAULT),
	(67, '2024-01-17 12:00:00+00', 6, 66.00, 'ok', 'n66', DEFAULT),
	(68, '2024-01-17 18:00:00+00', 7, 67.00, 'ok', 'n67', DEFAULT),
	(69, '2024-01-18 00:00:00+00', 8, 68.00, 'ok', 'n68', DEFAULT),
	(70, '2024-01-18 06:00:00+00', 9, 69.00, 'ok', 'n69', DEFAULT),
	(71, '2024-01-18 12:00:00+00', 0, 70.00, 'ok', 'n70', DEFAULT),
	(72, '2024-01-18 18:00:00+00', 1, 71.00, 'ok', 'n71', DEFAULT),
	(73, '2024-01-19 00:00:00+00', 2, 72.00, 'ok', 'n72', DEFAULT),
	(74, '2024-01-19 06:00:00+00', 3, 73.00, 'ok', 'n73', DEFAULT),
	(75, '2024-01-19 12:00:00+00', 4, 74.00, 'ok', 'n74', DEFAULT),
	(76, '2024-01-19 18:00:00+00', 5, 75.00, 'ok', 'n75', DEFAULT),
	(77, '2024-01-20 00:00:00+00', 6, 76.00, 'ok', 'n76', DEFAULT),
	(78, '2024-01-20 06:00:00+00', 7, 77.00, 'ok', 'n77', DEFAULT),
	(79, '2024-01-20 12:00:00+00', 8, 78.00, 'ok', 'n78', DEFAULT),
	(80, '2024-01-20 18:00:00+00', 9, 79.00, 'ok', 'n79', DEFAULT),
	(81, '2024-01-21 00:00:00+00', 0, 80.00, 'ok', 'n80', DEFAULT),
	(82, '2024-01-21 06:00:00+00', 1, 81.00, 'ok', 'n81', DEFAULT),
	(83, '2024-01-21 12:00:00+00', 2, 82.00, 'ok', 'n82', DEFAULT),
	(84, '2024-01-21 18:00:00+00', 3, 83.00, 'ok', 'n83', DEFAULT),
	(85, '2024-01-22 00:00:00+00', 4, 84.00, 'ok', 'n84', DEFAULT),
	(86, '2024-01-22 06:00:00+00', 5, 85.00, 'ok', 'n85', DEFAULT),
	(87, '2024-01-22 12:00:00+00', 6, 86.00, 'ok', 'n86', DEFAULT),
	(88, '2024-01-22 18:00:00+00', 7, 87.00, 'ok', 'n87', DEFAULT),
	(89, '2024-01-23 00:00:00+00', 8, 88.00, 'ok', 'n88', DEFAULT),
	(90, '2024-01-23 06:00:00+00', 9, 89.00, 'ok', 'n89', DEFAULT),
	(91, '2024-01-23 12:00:00+00', 0, 90.00, 'ok', 'n90', DEFAULT),
	(92, '2024-01-23 18:00:00+00', 1, 91.00, 'ok', 'n91', DEFAULT),
	(93, '2024-01-24 00:00:00+00', 2, 92.00, 'ok', 'n92', DEFAULT),
	(94, '2024-01-24 06:00:00+00', 3, 93.00, 'ok', 'n93', DEFAULT),
	(95, '2024-01-24 12:00:00+00', 4, 94.00, 'ok', 'n94', DEFAULT),
	(96, '2024-01-24 18:00:00+00', 5, 95.00, 'ok', 'n95', DEFAULT),
	(97, '2024-01-25 00:00:00+00', 6, 96.00, 'ok', 'n96', DEFAULT),
	(98, '2024-01-25 06:00:00+00', 7, 97.00, 'ok', 'n97', DEFAULT),
	(99, '2024-01-25 12:00:00+00', 8, 98.00, 'ok', 'n98', DEFAULT),
	(100, '2024-01-25 18:00:00+00', 9, 99.00, 'ok', 'n99', DEFAULT);
INSERT INTO public.events_01 VALUES
	(101, '2024-01-26 00:00:00+00', 0, 100.00, 'ok', 'n100', DEFAULT),
	(102, '2024-01-26 06:00:00+00', 1, 101.00, 'ok', 'n101', DEFAULT),
	(103, '2024-01-26 12:00:00+00', 2, 102.00, 'ok', 'n102', DEFAULT),
	(104, '2024-01-26 18:00:00+00', 3, 103.00, 'ok', 'n103', DEFAULT),
	(105, '2024-01-27 00:00:00+00', 4, 104.00, 'ok', 'n104', DEFAULT),
	(106, '2024-01-27 06:00:00+00', 5, 105.00, 'ok', 'n105', DEFAULT),
	(107, '2024-01-27 12:00:00+00', 6, 106.00, 'ok', 'n106', DEFAULT),
	(108, '2024-01-27 18:00:00+00', 7, 107.00, 'ok', 'n107', DEFAULT),
	(109, '2024-01-28 00:00:00+00', 8, 108.00, 'ok', 'n108', DEFAULT),
	(110, '2024-01-28 06:00:00+00', 9, 109.00, 'ok', 'n109', DEFAULT),
	(111, '2024-01-28 12:00:00+00', 0, 110.00, 'ok', 'n110', DEFAULT),
	(112, '2024-01-28 18:00:00+00', 1, 111.00, 'ok', 'n111', DEFAULT),
	(113, '2024-01-29 00:00:00+00', 2, 112.00, 'ok', 'n112', DEFAULT),
	(114, '2024-01-29 06:00:00+00', 3, 113.00, 'ok', 'n113', DEFAULT),
	(115, '2024-01-29 12:00:00+00', 4, 114.00, 'ok', 'n114', DEFAULT),
	(116, '2024-01-29 18:00:00+00', 5, 115.00, 'ok', 'n115', DEFAULT),
	(117, '2024-01-30 00:00:00+00', 6, 116.00, 'ok', 'n116', DEFAULT),
	(118, '2024-01-30 06:00:00+00', 7, 117.00, 'ok', 'n117', DEFAULT),
	(119, '2024-01-30 12:00:00+00', 8, 118.00, 'ok', 'n118', DEFAULT),
	(120, '2024-01-30 18:00:00+00', 9, 119.00, 'ok', 'n119', DEFAULT),
	(121, '2024-01-31 00:00:00+00', 0, 120.00, 'ok', 'n120', DEFAULT),
	(122, '2024-01-31 06:00:00+00', 1, 121.00, 'ok', 'n121', DEFAULT),
	(123, '2024-01-31 12:00:00+00', 2, 122.00, 'ok', 'n122', DEFAULT),
	(124, '2024-01-31 18:00:00+00', 3, 123.00, 'ok', 'n123', DEFAULT);
INSERT INTO public.events_02 VALUES
	(125, '2024-02-01 00:00:00+00', 4, 124.00, 'ok', 'n124', DEFAULT),
	(126, '2024-02-01 06:00:00+00', 5, 125.00, 'ok', 'n125', DEFAULT),
	(127, '2024-02-01 12:00:00+00', 6, 126.00, 'ok', 'n126', DEFAULT),
	(128, '2024-02-01 18:00:00+00', 7, 127.00, 'ok', 'n127', DEFAULT),
	(129, '2024-02-02 00:00:00+00', 8, 128.00, 'ok', 'n128', DEFAULT),
	(130, '2024-02-02 06:00:00+00', 9, 129.00, 'ok', 'n129', DEFAULT),
	(131, '2024-02-02 12:00:00+00', 0, 130.00, 'ok', 'n130', DEFAULT),
	(132, '2024-02-02 18:00:00+00', 1, 131.00, 'ok', 'n131', DEFAULT),
	(133, '2024-02-03 00:00:00+00', 2, 132.00, 'ok', 'n132', DEFAULT),
	(134, '2024-02-03 06:00:00+00', 3, 133.00, 'ok', 'n133', DEFAULT),
	(135, '2024-02-03 12:00:00+00', 4, 134.00, 'ok', 'n134', DEFAULT),
	(136, '2024-02-03 18:00:00+00', 5, 135.00, 'ok', 'n135', DEFAULT),
	(137, '2024-02-04 00:00:00+00', 6, 136.00, 'ok', 'n136', DEFAULT),
	(138, '2024-02-04 06:00:00+00', 7, 137.00, 'ok', 'n137', DEFAULT),
	(139, '2024-02-04 12:00:00+00', 8, 138.00, 'ok', 'n138', DEFAULT),
	(140, '2024-02-04 18:00:00+00', 9, 139.00, 'ok', 'n139', DEFAULT),
	(141, '2024-02-05 00:00:00+00', 0, 140.00, 'ok', 'n140', DEFAULT),
	(142, '2024-02-05 06:00:00+00', 1, 141.00, 'ok', 'n141', DEFAULT),
	(143, '2024-02-05 12:00:00+00', 2, 142.00, 'ok', 'n142', DEFAULT),
	(144, '2024-02-05 18:00:00+00', 3, 143.00, 'ok', 'n143', DEFAULT),
	(145, '2024-02-06 00:00:00+00', 4, 144.00, 'ok', 'n144', DEFAULT),
	(146, '2024-02-06 06:00:00+00', 5, 145.00, 'ok', 'n145', DEFAULT),
	(147, '2024-02-06 12:00:00+00', 6, 146.00, 'ok', 'n146', DEFAULT),
	(148, '2024-02-06 18:00:00+00', 7, 147.00, 'ok', 'n147', DEFAULT),
	(149, '2024-02-07 00:00:00+00', 8, 148.00, 'ok', 'n148', DEFAULT),
	(150, '2024-02-07 06:00:00+00', 9, 149.00, 'ok', 'n149', DEFAULT),
	(151, '2024-02-07 12:00:00+00', 0, 150.00, 'ok', 'n150', DEFAULT),
	(152, '2024-02-07 18:00:00+00', 1, 151.00, 'ok', 'n151', DEFAULT),
	(153, '2024-02-08 00:00:00+00', 2, 152.00, 'ok', 'n152', DEFAULT),
	(154, '2024-02-08 06:00:00+00', 3, 153.00, 'ok', 'n153', DEFAULT),
	(155, '2024-02-08 12:00:00+00', 4, 154.00, 'ok', 'n154', DEFAULT),
	(156, '2024-02-08 18:00:00+00', 5, 155.00, 'ok', 'n155', DEFAULT),
	(157, '2024-02-09 00:00:00+00', 6, 156.00, 'ok', 'n156', DEFAULT),
	(158, '2024-02-09 06:00:00+00', 7, 157.00, 'ok', 'n157', DEFAULT),
	(159, '2024-02-09 12:00:00+00', 8, 158.00, 'ok', 'n158', DEFAULT),
	(160, '2024-02-09 18:00:00+00', 9, 159.00, 'ok', 'n159', DEFAULT),
	(161, '2024-02-10 00:00:00+00', 0, 160.00, 'ok', 'n160', DEFAULT),
	(162, '2024-02-10 06:00:00+00', 1, 161.00, 'ok', 'n161', DEFAULT),
	(163, '2024-02-10 12:00:00+00', 2, 162.00, 'ok', 'n162', DEFAULT),
	(164, '2024-02-10 18:00:00+00', 3, 163.00, 'ok', 'n163', DEFAULT),
	(165, '2024-02-11 00:00:00+00', 4, 164.00, 'ok', 'n164', DEFAULT),
	(166, '2024-02-11 06:00:00+00', 5, 165.00, 'ok', 'n165', DEFAULT),
	(167, '2024-02-11 12:00:00+00', 6, 166.00, 'ok', 'n166', DEFAULT),
	(168, '2024-02-11 18:00:00+00', 7, 167.00, 'ok', 'n167', DEFAULT),
	(169, '2024-02-12 00:00:00+00', 8, 168.00, 'ok', 'n168', DEFAULT),
	(170, '2024-02-12 06:00:00+00', 9, 169.00, 'ok', 'n169', DEFAULT),
	(171, '2024-02-12 12:00:00+00', 0, 170.00, 'ok', 'n170', DEFAULT),
	(172, '2024-02-12 18:00:00+00', 1, 171.00, 'ok', 'n171', DEFAULT),
	(173, '2024-02-13 00:00:00+00', 2, 172.00, 'ok', 'n172', DEFAULT),
	(174, '2024-02-13 06:00:00+00', 3, 173.00, 'ok', 'n173', DEFAULT),
	(175, '2024-02-13 12:00:00+00', 4, 174.00, 'ok', 'n174', DEFAULT),
	(176, '2024-02-13 18:00:00+00', 5, 175.00, 'ok', 'n175', DEFAULT),
	(177, '2024-02-14 00:00:00+00', 6, 176.00, 'ok', 'n176', DEFAULT),
	(178, '2024-02-14 06:00:00+00', 7, 177.00, 'ok', 'n177', DEFAULT),
	(179, '2024-02-14 12:00:00+00', 8, 178.00, 'ok', 'n178', DEFAULT),
	(180, '2024-02-14 18:00:00+00', 9, 179.00, 'ok', 'n179', DEFAULT),
	(181, '2024-02-15 00:00:00+00', 0, 180.00, 'ok', 'n180', DEFAULT),
	(182, '2024-02-15 06:00:00+00', 1, 181.00, 'ok', 'n181', DEFAULT),
	(183, '2024-02-15 12:00:00+00', 2, 182.00, 'ok', 'n182', DEFAULT),
	(184, '2024-02-15 18:00:00+00', 3, 183.00, 'ok', 'n183', DEFAULT),
	(185, '2024-02-16 00:00:00+00', 4, 184.00, 'ok', 'n184', DEFAULT),
	(186, '2024-02-16 06:00:00+00', 5, 185.00, 'ok', 'n185', DEFAULT),
	(187, '2024-02-16 12:00:00+00', 6, 186.00, 'ok', 'n186', DEFAULT),
	(188, '2024-02-16 18:00:00+00', 7, 187.00, 'ok', 'n187', DEFAULT),
	(189, '2024-02-17 00:00:00+00', 8, 188.00, 'ok', 'n188', DEFAULT),
	(190, '2024-02-17 06:00:00+00', 9, 189.00, 'ok', 'n189', DEFAULT),
	(191, '2024-02-17 12:00:00+00', 0, 190.00, 'ok', 'n190', DEFAULT),
	(192, '2024-02-17 18:00:00+00', 1, 191.00, 'ok', 'n191', DEFAULT),
	(193, '2024-02-18 00:00:00+00', 2, 192.00, 'ok', 'n192', DEFAULT),
	(194, '2024-02-18 06:00:00+00', 3, 193.00, 'ok', 'n193', DEFAULT),
	(195, '2024-02-18 12:00:00+00', 4, 194.00, 'ok', 'n194', DEFAULT),
	(196, '2024-02-18 18:00:00+00', 5, 195.00, 'ok', 'n195', DEFAULT),
	(197, '2024-02-19 00:00:00+00', 6, 196.00, 'ok', 'n196', DEFAULT),
	(198, '2024-02-19 06:00:00+00', 7, 197.00, 'ok', 'n197', DEFAULT),
	(199, '2024-02-19 12:00:00+00', 8, 198.00, 'ok', 'n198', DEFAULT),
	(200, '2024-02-19 18:00:00+00', 9, 199.00, 'ok', 'n199', DEFAULT),
	(201, '2024-02-20 00:00:00+00', 0, 200.00, 'ok', 'n200', DEFAULT),
	(202, '2024-02-20 06:00:00+00', 1, 201.00, 'ok', 'n201', DEFAULT),
	(203, '2024-02-20 12:00:00+00', 2, 202.00, 'ok', 'n202', DEFAULT),
	(204, '2024-02-20 18:00:00+00', 3, 203.00, 'ok', 'n203', DEFAULT),
	(205, '2024-02-21 00:00:00+00', 4, 204.00, 'ok', 'n204', DEFAULT),
	(206, '2024-02-21 06:00:00+00', 5, 205.00, 'ok', 'n205', DEFAULT),
	(207, '2024-02-21 12:00:00+00', 6, 206.00, 'ok', 'n206', DEFAULT),
	(208, '2024-02-21 18:00:00+00', 7, 207.00, 'ok', 'n207', DEFAULT),
	(209, '2024-02-22 00:00:00+00', 8, 208.00, 'ok', 'n208', DEFAULT),
	(210, '2024-02-22 06:00:00+00', 9, 209.00, 'ok', 'n209', DEFAULT),
	(211, '2024-02-22 12:00:00+00', 0, 210.00, 'ok', 'n210', DEFAULT),
	(212, '2024-02-22 18:00:00+00', 1, 211.00, 'ok', 'n211', DEFAULT),
	(213, '2024-02-23 00:00:00+00', 2, 212.00, 'ok', 'n212', DEFAULT),
	(214, '2024-02-23 06:00:00+00', 3, 213.00, 'ok', 'n213', DEFAULT),
	(215, '2024-02-23 12:00:00+00', 4, 214.00, 'ok', 'n214', DEFAULT),
	(216, '2024-02-23 18:00:00+00', 5, 215.00, 'ok', 'n215', DEFAULT),
	(217, '2024-02-24 00:00:00+00', 6, 216.00, 'ok', 'n216', DEFAULT),
	(218, '2024-02-24 06:00:00+00', 7, 217.00, 'ok', 'n217', DEFAULT),
	(219, '2024-02-24 12:00:00+00', 8, 218.00, 'ok', 'n218', DEFAULT),
	(220, '2024-02-24 18:00:00+00', 9, 219.00, 'ok', 'n219', DEFAULT),
	(221, '2024-02-25 00:00:00+00', 0, 220.00, 'ok', 'n220', DEFAULT),
	(222, '2024-02-25 06:00:00+00', 1, 221.00, 'ok', 'n221', DEFAULT),
	(223, '2024-02-25 12:00:00+00', 2, 222.00, 'ok', 'n222', DEFAULT),
	(224, '2024-02-25 18:00:00+00', 3, 223.00, 'ok', 'n223', DEFAULT);
INSERT INTO public.events_02 VALUES
	(225, '2024-02-26 00:00:00+00', 4, 224.00, 'ok', 'n224', DEFAULT),
	(226, '2024-02-26 06:00:00+00', 5, 225.00, 'ok', 'n225', DEFAULT),
	(227, '2024-02-26 12:00:00+00', 6, 226.00, 'ok', 'n226', DEFAULT),
	(228, '2024-02-26 18:00:00+00', 7, 227.00, 'ok', 'n227', DEFAULT),
	(229, '2024-02-27 00:00:00+00', 8, 228.00, 'ok', 'n228', DEFAULT),
	(230, '2024-02-27 06:00:00+00', 9, 229.00, 'ok', 'n229', DEFAULT),
	(231, '2024-02-27 12:00:00+00', 0, 230.00, 'ok', 'n230', DEFAULT),
	(232, '2024-02-27 18:00:00+00', 1, 231.00, 'ok', 'n231', DEFAULT),
	(233, '2024-02-28 00:00:00+00', 2, 232.00, 'ok', 'n232', DEFAULT),
	(234, '2024-02-28 06:00:00+00', 3, 233.00, 'ok', 'n233', DEFAULT),
	(235, '2024-02-28 12:00:00+00', 4, 234.00, 'ok', 'n234', DEFAULT),
	(236, '2024-02-28 18:00:00+00', 5, 235.00, 'ok', 'n235', DEFAULT),
	(237, '2024-02-29 00:00:00+00', 6, 236.00, 'ok', 'n236', DEFAULT),
	(238, '2024-02-29 06:00:00+00', 7, 237.00, 'ok', 'n237', DEFAULT),
	(239, '2024-02-29 12:00:00+00', 8, 238.00, 'ok', 'n238', DEFAULT),
	(240, '2024-02-29 18:00:00+00', 9, 239.00, 'ok', 'n239', DEFAULT);
INSERT INTO public.events_03 VALUES
	(241, '2024-03-01 00:00:00+00', 0, 240.00, 'ok', 'n240', DEFAULT),
	(242, '2024-03-01 06:00:00+00', 1, 241.00, 'ok', 'n241', DEFAULT),
	(243, '2024-03-01 12:00:00+00', 2, 242.00, 'ok', 'n242', DEFAULT),
	(244, '2024-03-01 18:00:00+00', 3, 243.00, 'ok', 'n243', DEFAULT),
	(245, '2024-03-02 00:00:00+00', 4, 244.00, 'ok', 'n244', DEFAULT),
	(246, '2024-03-02 06:00:00+00', 5, 245.00, 'ok', 'n245', DEFAULT),
	(247, '2024-03-02 12:00:00+00', 6, 246.00, 'ok', 'n246', DEFAULT),
	(248, '2024-03-02 18:00:00+00', 7, 247.00, 'ok', 'n247', DEFAULT),
	(249, '2024-03-03 00:00:00+00', 8, 248.00, 'ok', 'n248', DEFAULT),
	(250, '2024-03-03 06:00:00+00', 9, 249.00, 'ok', 'n249', DEFAULT),
	(251, '2024-03-03 12:00:00+00', 0, 250.00, 'ok', 'n250', DEFAULT),
	(252, '2024-03-03 18:00:00+00', 1, 251.00, 'ok', 'n251', DEFAULT),
	(253, '2024-03-04 00:00:00+00', 2, 252.00, 'ok', 'n252', DEFAULT),
	(254, '2024-03-04 06:00:00+00', 3, 253.00, 'ok', 'n253', DEFAULT),
	(255, '2024-03-04 12:00:00+00', 4, 254.00, 'ok', 'n254', DEFAULT),
	(256, '2024-03-04 18:00:00+00', 5, 255.00, 'ok', 'n255', DEFAULT),
	(257, '2024-03-05 00:00:00+00', 6, 256.00, 'ok', 'n256', DEFAULT),
	(258, '2024-03-05 06:00:00+00', 7, 257.00, 'ok', 'n257', DEFAULT),
	(259, '2024-03-05 12:00:00+00', 8, 258.00, 'ok', 'n258', DEFAULT),
	(260, '2024-03-05 18:00:00+00', 9, 259.00, 'ok', 'n259', DEFAULT),
	(261, '2024-03-06 00:00:00+00', 0, 260.00, 'ok', 'n260', DEFAULT),
	(262, '2024-03-06 06:00:00+00', 1, 261.00, 'ok', 'n261', DEFAULT),
	(263, '2024-03-06 12:00:00+00', 2, 262.00, 'ok', 'n262', DEFAULT),
	(264, '2024-03-06 18:00:00+00', 3, 263.00, 'ok', 'n263', DEFAULT),
	(265, '2024-03-07 00:00:00+00', 4, 264.00, 'ok', 'n264', DEFAULT),
	(266, '2024-03-07 06:00:00+00', 5, 265.00, 'ok', 'n265', DEFAULT),
	(267, '2024-03-07 12:00:00+00', 6, 266.00, 'ok', 'n266', DEFAULT),
	(268, '2024-03-07 18:00:00+00', 7, 267.00, 'ok', 'n267', DEFAULT),
	(269, '2024-03-08 00:00:00+00', 8, 268.00, 'ok', 'n268', DEFAULT),
	(270, '2024-03-08 06:00:00+00', 9, 269.00, 'ok', 'n269', DEFAULT),
	(271, '2024-03-08 12:00:00+00', 0, 270.00, 'ok', 'n270', DEFAULT),
	(272, '2024-03-08 18:00:00+00', 1, 271.00, 'ok', 'n271', DEFAULT),
	(273, '2024-03-09 00:00:00+00', 2, 272.00, 'ok', 'n272', DEFAULT),
	(274, '2024-03-09 06:00:00+00', 3, 273.00, 'ok', 'n273', DEFAULT),
	(275, '2024-03-09 12:00:00+00', 4, 274.00, 'ok', 'n274', DEFAULT),
	(276, '2024-03-09 18:00:00+00', 5, 275.00, 'ok', 'n275', DEFAULT),
	(277, '2024-03-10 00:00:00+00', 6, 276.00, 'ok', 'n276', DEFAULT),
	(278, '2024-03-10 06:00:00+00', 7, 277.00, 'ok', 'n277', DEFAULT),
	(279, '2024-03-10 12:00:00+00', 8, 278.00, 'ok', 'n278', DEFAULT),
	(280, '2024-03-10 18:00:00+00', 9, 279.00, 'ok', 'n279', DEFAULT),
	(281, '2024-03-11 00:00:00+00', 0, 280.00, 'ok', 'n280', DEFAULT),
	(282, '2024-03-11 06:00:00+00', 1, 281.00, 'ok', 'n281', DEFAULT),
	(283, '2024-03-11 12:00:00+00', 2, 282.00, 'ok', 'n282', DEFAULT),
	(284, '2024-03-11 18:00:00+00', 3, 283.00, 'ok', 'n283', DEFAULT),
	(285, '2024-03-12 00:00:00+00', 4, 284.00, 'ok', 'n284', DEFAULT),
	(286, '2024-03-12 06:00:00+00', 5, 285.00, 'ok', 'n285', DEFAULT),
	(287, '2024-03-12 12:00:00+00', 6, 286.00, 'ok', 'n286', DEFAULT),
	(288, '2024-03-12 18:00:00+00', 7, 287.00, 'ok', 'n287', DEFAULT),
	(289, '2024-03-13 00:00:00+00', 8, 288.00, 'ok', 'n288', DEFAULT),
	(290, '2024-03-13 06:00:00+00', 9, 289.00, 'ok', 'n289', DEFAULT),
	(291, '2024-03-13 12:00:00+00', 0, 290.00, 'ok', 'n290', DEFAULT),
	(292, '2024-03-13 18:00:00+00', 1, 291.00, 'ok', 'n291', DEFAULT),
	(293, '2024-03-14 00:00:00+00', 2, 292.00, 'ok', 'n292', DEFAULT),
	(294, '2024-03-14 06:00:00+00', 3, 293.00, 'ok', 'n293', DEFAULT),
	(295, '2024-03-14 12:00:00+00', 4, 294.00, 'ok', 'n294', DEFAULT),
	(296, '2024-03-14 18:00:00+00', 5, 295.00, 'ok', 'n295', DEFAULT),
	(297, '2024-03-15 00:00:00+00', 6, 296.00, 'ok', 'n296', DEFAULT),
	(298, '2024-03-15 06:00:00+00', 7, 297.00, 'ok', 'n297', DEFAULT),
	(299, '2024-03-15 12:00:00+00', 8, 298.00, 'ok', 'n298', DEFAULT),
	(300, '2024-03-15 18:00:00+00', 9, 299.00, 'ok', 'n299', DEFAULT);
SELECT pg_catalog.setval('frostline.operations_id_seq', 1, false);
SELECT pg_catalog.setval('frostline.tables_id_seq', 1, true);
SELECT pg_catalog.setval('frostline.version', 1, false);
SELECT pg_catalog.setval('public.events_id_seq', 300, true);
ALTER TABLE ONLY frostline.columns
    ADD CONSTRAINT columns_pkey PRIMARY KEY (table_id, attnum);
ALTER TABLE ONLY frostline.columns
    ADD CONSTRAINT columns_table_id_lake_name_key UNIQUE (table_id, lake_name);
ALTER TABLE ONLY frostline.expiring
    ADD CONSTRAINT expiring_pkey PRIMARY KEY (table_id, snapshot_id);
ALTER TABLE ONLY frostline.gateways
    ADD CONSTRAINT gateways_pkey PRIMARY KEY (id);
ALTER TABLE ONLY frostline.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (only_one);
ALTER TABLE ONLY frostline.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (number);
ALTER TABLE ONLY frostline.operations
    ADD CONSTRAINT operations_pkey PRIMARY KEY (id);
ALTER TABLE ONLY frostline.periods
    ADD CONSTRAINT periods_foreign_table_key UNIQUE (foreign_table);
ALTER TABLE ONLY frostline.periods
    ADD CONSTRAINT periods_pkey PRIMARY KEY (table_id, upper);
ALTER TABLE ONLY frostline.pins
    ADD CONSTRAINT pins_pkey PRIMARY KEY (gateway, table_id, snapshot_id);
ALTER TABLE ONLY frostline.steps
    ADD CONSTRAINT steps_pkey PRIMARY KEY (operation_id, number);
ALTER TABLE ONLY frostline.tables
    ADD CONSTRAINT tables_delta_key UNIQUE (delta);
ALTER TABLE ONLY frostline.tables
    ADD CONSTRAINT tables_hot_key UNIQUE (hot);
ALTER TABLE ONLY frostline.tables
    ADD CONSTRAINT tables_lake_namespace_lake_table_key UNIQUE (lake_namespace, lake_table);
ALTER TABLE ONLY frostline.tables
    ADD CONSTRAINT tables_pkey PRIMARY KEY (id);
ALTER TABLE ONLY frostline.tables
    ADD CONSTRAINT tables_relation_key UNIQUE (relation);
ALTER TABLE ONLY frostline_delta.events_1
    ADD CONSTRAINT events_1__seq_key UNIQUE (_seq);
ALTER TABLE ONLY frostline_delta.events_1
    ADD CONSTRAINT events_1_id_ts__prev_key UNIQUE (id, ts, _prev);
ALTER TABLE ONLY frostline_lake.iceberg_namespace_properties
    ADD CONSTRAINT iceberg_namespace_properties_pkey PRIMARY KEY (catalog_name, namespace, property_key);
ALTER TABLE ONLY frostline_lake.iceberg_tables
    ADD CONSTRAINT iceberg_tables_pkey PRIMARY KEY (catalog_name, table_namespace, table_name);
ALTER TABLE ONLY public.customers
    ADD CONSTRAINT customers_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.events_hot
    ADD CONSTRAINT events_pkey PRIMARY KEY (id, ts);
ALTER TABLE ONLY public.events_01
    ADD CONSTRAINT events_01_pkey PRIMARY KEY (id, ts);
ALTER TABLE ONLY public.events_02
    ADD CONSTRAINT events_02_pkey PRIMARY KEY (id, ts);
ALTER TABLE ONLY public.events_03
    ADD CONSTRAINT events_03_pkey PRIMARY KEY (id, ts);
ALTER INDEX public.events_pkey ATTACH PARTITION public.events_01_pkey;
ALTER INDEX public.events_pkey ATTACH PARTITION public.events_02_pkey;
ALTER INDEX public.events_pkey ATTACH PARTITION public.events_03_pkey;
CREATE TRIGGER "!frostline" AFTER INSERT OR DELETE OR UPDATE ON public.events FOR EACH STATEMENT EXECUTE FUNCTION frostline.collect_1();
ALTER TABLE public.events ENABLE ALWAYS TRIGGER "!frostline";
CREATE TRIGGER "!frostline" AFTER INSERT OR DELETE OR UPDATE ON public.events_before FOR EACH STATEMENT EXECUTE FUNCTION frostline.collect_1();
ALTER FOREIGN TABLE public.events_before ENABLE ALWAYS TRIGGER "!frostline";
CREATE CONSTRAINT TRIGGER frostline_1_1_events_customer_fkey_delete AFTER DELETE ON public.customers NOT DEFERRABLE INITIALLY IMMEDIATE FOR EACH ROW EXECUTE FUNCTION frostline.keep_cold_references('1', 'events_customer_fkey');
CREATE TRIGGER frostline_1_1_events_customer_fkey_truncate BEFORE TRUNCATE ON public.customers FOR EACH STATEMENT EXECUTE FUNCTION frostline.keep_cold_references('1', 'events_customer_fkey');
CREATE CONSTRAINT TRIGGER frostline_1_1_events_customer_fkey_update AFTER UPDATE ON public.customers NOT DEFERRABLE INITIALLY IMMEDIATE FOR EACH ROW WHEN ((old.id IS DISTINCT FROM new.id)) EXECUTE FUNCTION frostline.keep_cold_references('1', 'events_customer_fkey');
ALTER TABLE ONLY frostline.columns
    ADD CONSTRAINT columns_table_id_fkey FOREIGN KEY (table_id) REFERENCES frostline.tables(id) ON DELETE CASCADE;
ALTER TABLE ONLY frostline.operations
    ADD CONSTRAINT operations_table_id_fkey FOREIGN KEY (table_id) REFERENCES frostline.tables(id) ON DELETE CASCADE;
ALTER TABLE ONLY frostline.periods
    ADD CONSTRAINT periods_operation_id_fkey FOREIGN KEY (operation_id) REFERENCES frostline.operations(id);
ALTER TABLE ONLY frostline.periods
    ADD CONSTRAINT periods_table_id_fkey FOREIGN KEY (table_id) REFERENCES frostline.tables(id) ON DELETE CASCADE;
ALTER TABLE ONLY frostline.pins
    ADD CONSTRAINT pins_gateway_fkey FOREIGN KEY (gateway) REFERENCES frostline.gateways(id) ON DELETE CASCADE;
ALTER TABLE ONLY frostline.steps
    ADD CONSTRAINT steps_operation_id_fkey FOREIGN KEY (operation_id) REFERENCES frostline.operations(id) ON DELETE CASCADE;
ALTER TABLE ONLY frostline_delta.references_1
    ADD CONSTRAINT events_customer_fkey FOREIGN KEY (customer) REFERENCES public.customers(id);
ALTER TABLE public.events_hot
    ADD CONSTRAINT events_customer_fkey FOREIGN KEY (customer) REFERENCES public.customers(id);
GRANT USAGE ON SCHEMA frostline TO PUBLIC;
REVOKE ALL ON FUNCTION frostline.keep_cold_references() FROM PUBLIC;
