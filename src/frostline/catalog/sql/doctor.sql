-- Queries of `frostline doctor`.

-- name: doctor_role
SELECT current_user, r.rolsuper, n.nspowner::regrole::text, pg_has_role(n.nspowner, 'USAGE')
FROM pg_roles r LEFT JOIN pg_namespace n ON n.nspname = 'frostline'
WHERE r.rolname = current_user;

-- name: doctor_extension
SELECT e.extversion, has_foreign_data_wrapper_privilege(f.oid, 'USAGE'), a.default_version
FROM pg_extension e JOIN pg_foreign_data_wrapper f ON f.fdwname = 'postgres_fdw'
LEFT JOIN pg_available_extensions a ON a.name = e.extname
WHERE e.extname = 'postgres_fdw';

-- name: doctor_server
-- The gateway's foreign server: its database (the installation it belongs to), who else may use it, and its mapping.
SELECT (SELECT option_value FROM pg_options_to_table(s.srvoptions) WHERE option_name = 'dbname'),
       (SELECT id::text FROM frostline.installation),
       (SELECT string_agg(CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END, ', ')
        FROM aclexplode(s.srvacl) a WHERE a.grantee <> s.srvowner),
       (SELECT array_agg(o.option_name ORDER BY 1) FROM pg_user_mappings m
        CROSS JOIN LATERAL pg_options_to_table(m.umoptions) o WHERE m.srvid = s.oid AND m.umuser = 0),
       ARRAY(SELECT quote_ident(m.usename) FROM pg_user_mappings m WHERE m.srvid = s.oid AND m.umuser <> 0 ORDER BY 1),
       ARRAY(SELECT option_name || '=' || option_value FROM pg_options_to_table(s.srvoptions)
             WHERE option_name IN ('host', 'hostaddr', 'port', 'sslmode'))
FROM pg_foreign_server s
WHERE s.srvname = %(server)s;

-- name: doctor_connections
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'),
       current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int;

-- name: doctor_standby
-- Seconds a standby is behind: none while it is connected and has replayed all it has got.
SELECT CASE WHEN EXISTS (SELECT FROM pg_stat_wal_receiver) AND pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() THEN 0
            ELSE coalesce(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0) END::float8
WHERE pg_is_in_recovery();

-- name: doctor_settings
-- Settings of a session of this role as they would be, had we not set them.
SELECT name, reset_val FROM pg_settings
WHERE name IN ('wal_level', 'session_replication_role', 'default_transaction_read_only', 'lock_timeout', 'statement_timeout',
               'plan_cache_mode');

-- name: doctor_resets
-- What takes a setting back that was made for this database or this role.
SELECT format('ALTER %%s RESET %%s',
              CASE WHEN s.setrole = 0 AND s.setdatabase = 0 THEN 'ROLE ALL'
                   WHEN s.setrole = 0 THEN format('DATABASE %%I', current_database())
                   WHEN s.setdatabase = 0 THEN format('ROLE %%I', current_user)
                   ELSE format('ROLE %%I IN DATABASE %%I', current_user, current_database()) END, %(name)s::text)
FROM pg_db_role_setting s
WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))
  AND s.setrole IN (0, (SELECT oid FROM pg_roles WHERE rolname = current_user))
  AND EXISTS (SELECT FROM unnest(s.setconfig) c WHERE split_part(c, '=', 1) = %(name)s);

-- name: doctor_triggers
-- Where a cold write could pass the trigger by that stores it.
SELECT t.id, n.nspname, c.relname, w.above, g.tgenabled::text
FROM frostline.tables t
CROSS JOIN LATERAL (
    SELECT t.relation::oid AS oid, false AS above
    UNION SELECT a.relid::oid, true FROM pg_partition_ancestors(t.relation) a WHERE a.relid <> t.relation
    UNION SELECT p.foreign_table::oid, false FROM frostline.periods p WHERE p.table_id = t.id
) w
JOIN pg_class c ON c.oid = w.oid
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_trigger g ON g.tgrelid = c.oid AND g.tgname = '!frostline' || CASE WHEN w.above THEN ' ' || t.id ELSE '' END
WHERE t.id = %(table)s AND g.tgenabled IS DISTINCT FROM 'A'
ORDER BY 2, 3;

-- name: doctor_bounds
-- Hot partitions whose lower bound is not proven by a CHECK: the next swap would read them under its lock.
SELECT c.oid, n.nspname, c.relname, k.convalidated
FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid AND c.relkind = 'r'
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_constraint k ON k.conrelid = c.oid AND k.conname = %(check)s
WHERE i.inhparent = %(hot)s AND k.convalidated IS NOT TRUE AND pg_get_expr(c.relpartbound, c.oid) <> 'DEFAULT'
  AND pg_get_expr(c.relpartbound, c.oid) NOT LIKE 'FOR VALUES FROM (MINVALUE)%%'
ORDER BY 2, 3;

-- name: doctor_statistics
-- Partitions of which the planner knows nothing, or only what was long ago.
SELECT c.oid::regclass::text,
       CASE WHEN c.reltuples < 0 THEN 'was never analyzed' ELSE s.n_mod_since_analyze || ' changes since the last ANALYZE' END
FROM frostline.tables t
CROSS JOIN LATERAL pg_partition_tree(t.relation) tree
JOIN pg_class c ON c.oid = tree.relid
LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
WHERE t.id = %(table)s AND tree.isleaf
  AND (c.reltuples < 0 AND (c.relkind = 'f' OR pg_relation_size(c.oid) > 0)
       OR c.relkind = 'r' AND s.n_mod_since_analyze > 10000 AND s.n_mod_since_analyze > c.reltuples / 2)
  AND (c.relkind <> 'f' OR EXISTS (SELECT FROM frostline.periods p WHERE p.foreign_table = c.oid AND p.rows > 0))
ORDER BY 1;

-- name: doctor_cold
-- A foreign partition that holds rows: its name, and what the registry knows of it.
SELECT n.nspname, c.relname, coalesce(p.lower, 'MINVALUE'), p.upper, p.rows
FROM frostline.periods p JOIN pg_class c ON c.oid = p.foreign_table JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.table_id = %(table)s AND p.rows > 0
ORDER BY p.rows
LIMIT 1;

-- name: doctor_dropped
-- Registered tables that somebody has dropped; or only the partition with their hot rows (the name is known then).
SELECT t.id, c.oid::regclass::text, t.lake_namespace || '.' || t.lake_table, d.oid::regclass::text, t.metadata_location
FROM frostline.tables t LEFT JOIN pg_class c ON c.oid = t.relation LEFT JOIN pg_class d ON d.oid = t.delta
WHERE c.oid IS NULL OR NOT EXISTS (SELECT FROM pg_class h WHERE h.oid = t.hot)
ORDER BY 1;

-- name: doctor_partitionings
SELECT coalesce(c.oid::regclass::text, p.plan ->> 'name'), p.state, date_trunc('second', p.started_at)::text
FROM frostline.partitionings p LEFT JOIN pg_class c ON c.oid = p.source;

-- name: registry_relations
-- Tables of ours that hold text anybody wrote.
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname IN ('frostline', 'frostline_lake') AND c.relkind = 'r'
ORDER BY 1, 2;
