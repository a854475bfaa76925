-- frostline.explain(text): what a statement would read, hot and cold, without running it.

CREATE FOREIGN TABLE frostline.call_explain (argument text, answer text)
    SERVER "frostline gateway (frostline up starts it)" OPTIONS (schema_name 'frostline call', table_name 'explain');

CREATE TYPE frostline.explanation AS (
    relation   text,
    tier       text,    -- hot, cold, plain (not a table of ours), pruned
    rows       float8,  -- the planner's estimate
    engine     text,    -- who answers: Postgres, DuckDB, or Postgres over rows that DuckDB hands it
    snapshot   bigint,
    files      int,
    of_files   int,
    bytes      bigint,
    of_bytes   bigint,
    delta_rows bigint,
    pushed     text,    -- conditions that DuckDB evaluates
    kept       text,    -- conditions that Postgres evaluates
    why        text,
    remote     text     -- the statement postgres_fdw sends
);

-- Whether whoever called may read every table of ours that a remote statement names. `role` is the caller's SET ROLE:
-- a SECURITY DEFINER function changes the current user and leaves it alone.
CREATE FUNCTION frostline.may_explain(remote text) RETURNS bool
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
    SELECT coalesce(bool_and(has_any_column_privilege(
               CASE current_setting('role') WHEN 'none' THEN session_user ELSE current_setting('role')::name END,
               t.relation, 'SELECT')), false)
    FROM regexp_matches(remote, '"table (\d+)(?: [^"]*)?"\.', 'g') AS named
    LEFT JOIN frostline.tables t ON t.id = named[1]::bigint
$$;

-- The gateway's answer about one remote statement; when it cannot be asked, why.
CREATE FUNCTION frostline.explain_remote(remote text) RETURNS jsonb
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT frostline.may_explain(remote) THEN
        RETURN jsonb_build_object('why', 'no SELECT on the table itself: not shown');
    END IF;
    RETURN (SELECT c.answer FROM frostline.call_explain c WHERE c.argument = remote)::jsonb;
EXCEPTION WHEN OTHERS THEN
    RETURN jsonb_build_object('why', sqlerrm);
END $$;

CREATE FUNCTION frostline.explain_plan(plan jsonb) RETURNS SETOF frostline.explanation
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
        LEFT JOIN frostline.tables t ON t.relation = coalesce(pg_partition_root(s.relation), s.relation)
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

-- As the caller, with the caller's search_path: EXPLAIN asks for the privileges the statement itself would need.
-- A loop over EXECUTE takes one statement only, so nothing behind a semicolon is ever run.
CREATE FUNCTION frostline.explain(statement text) RETURNS SETOF frostline.explanation
LANGUAGE plpgsql AS $$
DECLARE
    plan json;
BEGIN
    FOR plan IN EXECUTE 'EXPLAIN (VERBOSE, FORMAT JSON) ' || statement LOOP
        RETURN QUERY SELECT * FROM frostline.explain_plan(plan::pg_catalog.jsonb);
    END LOOP;
END $$;
COMMENT ON FUNCTION frostline.explain(text) IS 'What a statement would read of each tier, and who would evaluate what';
