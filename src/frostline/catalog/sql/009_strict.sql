-- SET frostline.strict = on: a write that cannot be proven to touch one tier only is refused.

-- Has the gateway been asked to change rows of a table (the argument) since this was asked last?
CREATE FOREIGN TABLE frostline.call_touched (argument text, answer text)
    SERVER "frostline gateway (frostline up starts it)" OPTIONS (schema_name 'frostline call', table_name 'touched');

-- Called by a registered table's trigger at the end of a statement. Whether it came to old rows is known to the gateway;
-- whether to recent ones, from the locks for writing and the statistics of this transaction, which an earlier statement
-- of it may have left there.
CREATE FUNCTION frostline.refuse_two_tiers(table_id bigint, target oid) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    managed frostline.tables;
    hot bool;
    touched text;
    asked text := table_id;
    key text;
BEGIN
    IF NOT coalesce(nullif(current_setting('frostline.strict', true), '')::bool, false)
        OR EXISTS (SELECT FROM pg_class c WHERE c.oid = target AND c.relkind = 'f')
    THEN
        RETURN;
    END IF;
    SELECT * INTO managed FROM frostline.tables t WHERE t.id = table_id;
    -- A constant to the planner, so that it travels.
    DELETE FROM frostline.call_touched c WHERE c.argument = asked RETURNING c.answer INTO touched;
    SELECT touched = 'yes' AND EXISTS (
        SELECT FROM pg_partition_tree(managed.hot) p
        JOIN pg_locks l ON l.relation = p.relid AND l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.granted
        WHERE p.isleaf AND l.pid = pg_backend_pid()
          AND (pg_stat_get_xact_numscans(p.relid) > 0
               OR pg_stat_get_xact_tuples_inserted(p.relid) > 0
               OR EXISTS (SELECT FROM pg_index i WHERE i.indrelid = p.relid AND pg_stat_get_xact_numscans(i.indexrelid) > 0)))
    INTO hot;
    IF NOT hot THEN
        RETURN;
    END IF;
    SELECT a.attname INTO key FROM pg_partitioned_table p
    JOIN pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = p.partattrs[0] WHERE p.partrelid = managed.relation;
    RAISE EXCEPTION USING ERRCODE = '2F003',
        MESSAGE = format('this statement may change recent and old rows of %s', managed.relation),
        DETAIL = format('frostline.strict is on; rows with %s below %s are old', key, managed.seam),
        HINT = format('Nothing was changed. Say which with a condition on %1$I by constants or parameters: %1$I = ..., %1$I >= %2$L,'
                      ' %1$I < %2$L, %1$I BETWEEN ... AND ..., %1$I IN (...). In a transaction that changes both, old rows come first.',
                      key, managed.seam);
END $$;
COMMENT ON FUNCTION frostline.refuse_two_tiers(bigint, oid) IS
    'What SET frostline.strict = on does at the end of each statement that writes a registered table';
