-- The worker: who is alive and who leads, and which of its steps keep failing.

CREATE TABLE frostline.workers (
    id         uuid PRIMARY KEY,
    host       text NOT NULL,
    pid        int NOT NULL,
    leader     bool NOT NULL DEFAULT false,
    doing      text,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    heartbeat  timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE frostline.workers IS 'one row per running worker; one whose heartbeat is old is dead';
COMMENT ON COLUMN frostline.workers.doing IS 'the step that is under way; NULL: it waits for its next round';

CREATE TABLE frostline.upkeep (
    table_id bigint NOT NULL REFERENCES frostline.tables ON DELETE CASCADE,
    step     text NOT NULL,
    done_at  timestamptz,
    failures int NOT NULL DEFAULT 0,
    retry_at timestamptz,
    error    text,
    PRIMARY KEY (table_id, step)
);
COMMENT ON TABLE frostline.upkeep IS 'steps of the worker that failed, until they succeed, and when slow ones were last done';
COMMENT ON COLUMN frostline.upkeep.failures IS 'in a row; each doubles the pause before the next try';

CREATE VIEW frostline.failing AS
SELECT t.relation::text AS "table", u.step, u.failures, u.retry_at, u.error
FROM frostline.upkeep u JOIN frostline.tables t ON t.id = u.table_id
WHERE u.failures > 0
ORDER BY 1, 2;
COMMENT ON VIEW frostline.failing IS 'steps of the worker whose last try failed, and when they are tried again';
