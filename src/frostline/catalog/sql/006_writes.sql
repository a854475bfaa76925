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
