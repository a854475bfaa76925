-- What came back from the lake on purpose stays.

ALTER TABLE frostline.tables ADD COLUMN held_from text;
COMMENT ON COLUMN frostline.tables.held_from IS
    'partitions from this key (or MINVALUE) on came back by frostline untier: they are archived when a person names the table, not before';
