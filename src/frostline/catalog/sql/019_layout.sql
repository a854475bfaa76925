-- How a table is laid out in the lake: the steps its files are cut by, the order of rows in them, how files are joined.

ALTER TABLE frostline.tables
    ADD COLUMN lake_partition text NOT NULL DEFAULT 'auto',
    ADD COLUMN sort_order text,
    ADD COLUMN compaction text NOT NULL DEFAULT 'sort' CHECK (compaction IN ('sort', 'binpack'));
COMMENT ON COLUMN frostline.tables.lake_partition IS
    'steps of the partition key that files of the lake are cut by: hour, day, month, year, a width; auto: as the partitions are';
COMMENT ON COLUMN frostline.tables.sort_order IS
    'columns, by attribute number, that rows of new files are sorted by: 3 desc first, 1 asc last; NULL: the primary key';
COMMENT ON COLUMN frostline.tables.compaction IS 'whether maintenance sorts the rows of files that it joins';

ALTER TABLE frostline.operations ADD COLUMN noted bigint[] DEFAULT '{}';
COMMENT ON COLUMN frostline.operations.noted IS
    'Iceberg snapshots it has made on its way to the last one, for catalogs without a history; NULL: nothing of it is to be shown';
