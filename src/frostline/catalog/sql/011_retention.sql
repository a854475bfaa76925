-- Retention: below a line that only moves up, nothing is kept and nothing can be written.

ALTER TABLE frostline.tables ADD COLUMN retained_from text;
COMMENT ON COLUMN frostline.tables.retained_from IS 'keys below it are not kept: reads find nothing there, writes are refused; NULL: all are';

ALTER TABLE frostline.operations DROP CONSTRAINT operations_kind_check;
ALTER TABLE frostline.operations ADD CONSTRAINT operations_kind_check
    CHECK (kind IN ('archive', 'coalesce', 'fold', 'untier', 'trim', 'maintain', 'retention'));
