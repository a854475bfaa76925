-- Gateways that are alive, the Iceberg snapshots they read, and what a session can ask of them by SQL.

CREATE TABLE frostline.gateways (
    id         uuid PRIMARY KEY,
    host       text NOT NULL,
    port       int NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat  timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE frostline.gateways IS 'one row per running gateway; one whose heartbeat is old is dead';

CREATE TABLE frostline.pins (
    gateway           uuid NOT NULL REFERENCES frostline.gateways ON DELETE CASCADE,
    table_id          bigint NOT NULL,
    snapshot_id       bigint NOT NULL,
    metadata_location text NOT NULL,
    pinned_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (gateway, table_id, snapshot_id)
);
COMMENT ON TABLE frostline.pins IS 'Iceberg snapshots that sessions read: not to be removed while their gateway is alive';

-- Written before a snapshot is removed and kept afterwards: a gateway looks here after it has pinned.
CREATE TABLE frostline.expiring (
    table_id    bigint NOT NULL,
    snapshot_id bigint NOT NULL,
    since       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (table_id, snapshot_id)
);
COMMENT ON TABLE frostline.expiring IS 'Iceberg snapshots that maintenance removes or has removed';

-- Calls of the gateway: the argument travels as a condition, the answer as a row, over the session's own connection
-- and so inside its remote transaction.
CREATE FOREIGN TABLE frostline.call_pin (argument text, answer text)
    SERVER "frostline gateway (frostline up starts it)" OPTIONS (schema_name 'frostline call', table_name 'pin');

-- Everybody may call the functions; the tables stay ours.
GRANT USAGE ON SCHEMA frostline TO PUBLIC;

CREATE FUNCTION frostline.pin() RETURNS text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
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
COMMENT ON FUNCTION frostline.pin() IS
    'Cold rows are read at this transaction''s own snapshot: hot and cold are then exactly one state of the table';
