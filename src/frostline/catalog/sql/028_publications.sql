-- A publication of all tables has those of ours too, and Postgres lets nobody update or delete what is published and
-- cannot be told apart: versions are by their numbers.

DO $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT format('ALTER TABLE %s REPLICA IDENTITY USING INDEX %I', t.delta, i.relname)
        FROM frostline.tables t
        JOIN pg_class d ON d.oid = t.delta
        JOIN pg_index x ON x.indrelid = t.delta AND x.indisunique AND x.indnatts = 1
        JOIN pg_attribute a ON a.attrelid = t.delta AND a.attnum = x.indkey[0] AND a.attname = '_seq'
        JOIN pg_class i ON i.oid = x.indexrelid
        WHERE pg_has_role(d.relowner, 'USAGE')
    LOOP
        EXECUTE statement;
    END LOOP;
END $$;
