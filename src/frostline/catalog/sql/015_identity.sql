-- Which database this is: one that was restored, copied, dumped or failed over to finds that it is another one.

ALTER TABLE frostline.installation
    ADD COLUMN system text,
    ADD COLUMN database oid,
    ADD COLUMN timeline int;
UPDATE frostline.installation i
SET system = s.system_identifier::text, database = d.oid,
    timeline = ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int
FROM pg_control_system() s, pg_database d
WHERE d.datname = current_database();
COMMENT ON COLUMN frostline.installation.system IS 'the cluster that changes the lake under this id';
COMMENT ON COLUMN frostline.installation.database IS 'the database in it';
COMMENT ON COLUMN frostline.installation.timeline IS
    'of its write-ahead log: another one after a restore to a point in time and after a standby was promoted';
