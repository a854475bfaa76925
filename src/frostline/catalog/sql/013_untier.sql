-- Leaving: periods come back from the lake into Postgres.

ALTER TABLE frostline.operations DROP CONSTRAINT operations_kind_check;
ALTER TABLE frostline.operations
    ADD CONSTRAINT operations_kind_check CHECK (kind IN ('archive', 'coalesce', 'fold', 'untier', 'trim', 'maintain', 'retention'));
ALTER TABLE frostline.operations
    ADD COLUMN loaded bigint[],
    ADD COLUMN loaded_from bigint,
    ADD COLUMN overtook xid8;
COMMENT ON COLUMN frostline.operations.loaded IS 'of an untier: the versions of the delta that its new leaf was loaded with';
COMMENT ON COLUMN frostline.operations.loaded_from IS 'of an untier: the Iceberg snapshot its new leaf was loaded from';
COMMENT ON COLUMN frostline.operations.overtook IS
    'of an untier: the transaction that applied changes made while it loaded; snapshots older than it do not see them there';

ALTER TABLE frostline.tables ADD COLUMN surplus bool NOT NULL DEFAULT false;
COMMENT ON COLUMN frostline.tables.surplus IS
    'the lake still holds rows at or above the seam: nobody reads them, and they go before others are added there';
