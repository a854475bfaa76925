-- The planner's statistics of a foreign partition: how far they are from its rows.

ALTER TABLE frostline.periods ADD COLUMN changed bigint NOT NULL DEFAULT 0;
COMMENT ON COLUMN frostline.periods.changed IS
    'rows that folds and bulk inserts have added, changed or removed since the planner''s statistics were taken';
-- Nobody counted until now; where the number of rows is another one, much has changed.
UPDATE frostline.periods p SET changed = greatest(p.rows, c.reltuples::bigint)
FROM pg_class c
WHERE c.oid = p.foreign_table AND c.reltuples >= 0 AND abs(c.reltuples - p.rows) > greatest(p.rows, c.reltuples) / 10;
