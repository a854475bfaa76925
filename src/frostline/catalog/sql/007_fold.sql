-- Folding: versions of cold rows go from the delta into the lake.

ALTER TABLE frostline.operations DROP CONSTRAINT operations_kind_check;
ALTER TABLE frostline.operations ADD CONSTRAINT operations_kind_check CHECK (kind IN ('archive', 'coalesce', 'fold'));
ALTER TABLE frostline.operations ADD COLUMN folded bigint[];
COMMENT ON COLUMN frostline.operations.folded IS
    'of a fold: the versions it read, until they are removed from the delta; with them a later run can finish it';

ALTER TABLE frostline.tables
    ADD COLUMN merge_mode text NOT NULL DEFAULT 'copy-on-write' CHECK (merge_mode IN ('copy-on-write', 'merge-on-read'));
COMMENT ON COLUMN frostline.tables.merge_mode IS
    'how a fold changes the lake: copy-on-write rewrites the files concerned, merge-on-read adds files of deletes';
