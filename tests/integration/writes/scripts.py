"""Statements that must do the same to cold rows as to any: each script is one transaction."""

from __future__ import annotations

SINGLE = [
    # UPDATE: constants, expressions, casts, NULL, DEFAULT, every type
    "UPDATE {t} SET i = 0 WHERE id = 5",
    "UPDATE {t} SET i = i + 1 WHERE id BETWEEN 195 AND 205",
    "UPDATE {t} SET i = i + 1 WHERE id BETWEEN 395 AND 405 RETURNING id, i",
    "UPDATE {t} SET i = i * 2, t = t || '!', f = f / 2 RETURNING id, i, t, f",
    "UPDATE {t} SET t = NULL, i = DEFAULT WHERE id % 50 = 0 RETURNING *",
    "UPDATE {t} SET n = n / 3, f = i, i = n WHERE id IN (1, 201, 401) RETURNING n, f, i",
    "UPDATE {t} SET v = 'much too long for it' WHERE id = 5",
    "UPDATE {t} SET v = left(t, 8), c = 'x' WHERE id < 10 RETURNING v, c",
    "UPDATE {t} SET b = NOT b, d = d + 1, u = gen_random_uuid() IS NOT NULL::text::uuid WHERE false",
    "UPDATE {t} SET y = y || '\\x00ff'::bytea, j = j || '{\"a\": [1, null]}', a = a || 5, m = 'sad', p = p + 1"
    " WHERE id IN (7, 207, 407) RETURNING y, j, a, m, p",
    "UPDATE {t} SET p = -1 WHERE id = 8",
    "UPDATE {t} SET m = 'glad' WHERE id = 8",
    "UPDATE {t} SET i = -1000 WHERE id = 8",
    "UPDATE {t} SET i = -1000 WHERE id = 408",
    "UPDATE {t} SET id = NULL WHERE id = 8",
    "UPDATE {t} SET g = 5 WHERE id = 8",
    "UPDATE {t} SET g = DEFAULT WHERE id = 8 RETURNING g",
    "UPDATE {t} SET k = 77 WHERE id = 8",
    "UPDATE {t} SET k = NULL WHERE id IN (8, 208, 408) RETURNING id, k",
    "UPDATE {t} SET i = 1 / (i - i) WHERE id = 8",
    "UPDATE {t} SET i = 2147483647 + i WHERE id = 8",
    "UPDATE {t} SET f = 'NaN', n = 'NaN' WHERE id = 408",
    "UPDATE {t} SET f = 'NaN' WHERE id = 8 RETURNING f",
    "UPDATE {t} SET f = '-0', t = '(-0)::real' WHERE id IN (8, 408) RETURNING f::text, t",
    "UPDATE {t} SET f = '-Infinity', t = E'tab\\t nl\\n bs\\\\ q\\'' WHERE id = 8 RETURNING f, t",
    "UPDATE {t} SET t = upper(t) WHERE t LIKE 'row 1%'",
    "UPDATE {t} SET t = upper(t) WHERE t ~ '^row 2' RETURNING t",
    "UPDATE {t} SET (i, t) = (SELECT 3, 'sub') WHERE id = 9 RETURNING i, t",
    "UPDATE {t} SET (i, t) = (SELECT o.k, o.w FROM other o WHERE o.k = {t}.k) WHERE id IN (11, 211, 411)"
    " RETURNING i, t",
    "UPDATE {t} SET i = 5 WHERE id = 123456",
    "UPDATE {t} SET i = 5 WHERE ts = '2026-01-01 05:00Z'",
    "UPDATE {t} SET i = 5 WHERE ts > '2026-01-31' AND ts < '2026-02-02' RETURNING id",
    "UPDATE ONLY {t} SET i = 5 WHERE id = 5",
    # joins
    "UPDATE {t} x SET t = o.w FROM other o WHERE o.k = x.k AND x.id IN (21, 221, 421) RETURNING x.id, x.t, o.w",
    "UPDATE {t} x SET t = y.t FROM {t} y WHERE y.id = x.id + 200 AND x.id < 6 RETURNING x.id, x.t, y.id",
    "UPDATE {t} x SET t = y.t FROM {t} y WHERE y.id = 401 AND x.id = 5 RETURNING x.*",
    # Rows of the second period are read after one of them was changed.
    "UPDATE {t} x SET t = y.t FROM {t} y WHERE y.id + 1 = x.id AND x.id BETWEEN 198 AND 204 RETURNING x.id, x.t",
    "DELETE FROM {t} x USING {t} y WHERE y.id + 1 = x.id AND x.id BETWEEN 198 AND 204 RETURNING x.id",
    "UPDATE {t} x SET i = 1 FROM generate_series(1, 3) s WHERE x.id = 5 RETURNING x.id",
    "UPDATE {t} SET i = (SELECT max(id) FROM {t}) WHERE id = 5 RETURNING i",
    "UPDATE {t} SET i = 5 WHERE id IN (SELECT id FROM {t} WHERE i = 5)",
    "UPDATE {t} SET i = 5 WHERE EXISTS (SELECT FROM other o WHERE o.k = {t}.k AND o.w = 'w3')",
    # DELETE
    "DELETE FROM {t} WHERE id = 5",
    "DELETE FROM {t} WHERE id IN (5, 205, 405) RETURNING *",
    "DELETE FROM {t} WHERE ts < '2026-02-01Z'",
    "DELETE FROM {t}",
    "DELETE FROM {t} WHERE t ~ '9$' RETURNING id, t",
    "DELETE FROM {t} x USING other o WHERE o.k = x.k AND o.w = 'w4' RETURNING x.id, o.w",
    "DELETE FROM {t} x USING {t} y WHERE y.id = x.id + 1 AND y.i = 5 RETURNING x.id",
    "DELETE FROM {t} WHERE id = (SELECT min(id) FROM {t})",
    # INSERT
    "INSERT INTO {t} (id, ts) VALUES (1000, '2026-01-05Z') RETURNING *",
    "INSERT INTO {t} (id, ts, i) VALUES (1000, '2026-01-05Z', 1), (1001, '2026-11-05Z', 2), (1002, '2025-05-05Z', 3)"
    " RETURNING id, ts, i, g",
    "INSERT INTO {t} (id, ts, i, t) SELECT id + 1000, ts, i, t FROM {t}",
    "INSERT INTO {t} (id, ts, i, t) SELECT id + 1000, ts, i, t FROM {t} WHERE id % 3 = 0 RETURNING id",
    "INSERT INTO {t} (id, ts, y, j, a, m, p, u) VALUES (1000, '2026-01-05Z', '\\x00', '{\"b\": 1, \"a\": 2}',"
    " '{NULL,1}', 'ok',"
    " 3, '11111111-1111-1111-1111-111111111111') RETURNING y, j, a, m, p, u",
    "INSERT INTO {t} (id, ts) VALUES (5, '2026-01-01 05:00Z')",
    "INSERT INTO {t} (id, ts) VALUES (405, '2026-11-01 05:00Z')",
    "INSERT INTO {t} (id, ts) VALUES (1000, '2026-01-05Z'), (1000, '2026-01-05Z')",
    "INSERT INTO {t} (id, ts) VALUES (5, '2026-01-01 05:00Z'), (1000, '2026-01-01 05:00Z') ON CONFLICT DO"
    " NOTHING RETURNING id",
    "INSERT INTO {t} (id, ts) VALUES (1000, '2026-01-05Z'), (1000, '2026-01-05Z') ON CONFLICT DO NOTHING",
    "INSERT INTO {t} (id, ts) SELECT id, ts FROM {t} ON CONFLICT DO NOTHING",
    "INSERT INTO {t} (id, ts, i) VALUES (1000, '2026-01-05Z', -5000)",
    "INSERT INTO {t} (id, ts, k) VALUES (1000, '2026-01-05Z', 77)",
    "INSERT INTO {t} (id, ts) VALUES (NULL, '2026-01-05Z')",
    "INSERT INTO {t} (id, ts, g) VALUES (1000, '2026-01-05Z', 1)",
    "INSERT INTO {t} (id, ts, v) VALUES (1000, '2026-01-05Z', 'much too long for it')",
    "INSERT INTO {t} (id, ts) VALUES (1000, '2099-01-05Z')",
    # moves
    "UPDATE {t} SET ts = ts + interval '31 days' WHERE id IN (3, 4) RETURNING id, ts",
    "UPDATE {t} SET ts = '2026-11-20Z' WHERE id = 3 RETURNING id, ts, t",
    "UPDATE {t} SET ts = '2026-11-20Z', t = 'moved' WHERE id IN (3, 203) RETURNING id, ts, t, g",
    "UPDATE {t} SET ts = '2026-01-20Z', t = 'moved' WHERE id = 450 AND ts > '2026-11-01Z' RETURNING id, ts, t, g",
    "UPDATE {t} SET ts = '2025-01-20Z' WHERE id = 3",
    "UPDATE {t} SET id = id + 1000 WHERE id IN (3, 203) RETURNING id, g",
    "UPDATE {t} SET id = id + 1000",
    "UPDATE {t} SET id = 405 - id WHERE id IN (202, 203) RETURNING id",
    "UPDATE {t} SET id = 9, ts = '2026-01-01 09:00Z' WHERE id = 8",
    "UPDATE {t} SET id = 8, ts = '2026-01-01 08:00Z' WHERE id = 8 RETURNING id",
    "UPDATE {t} SET id = 1 WHERE id IN (3, 4)",
    # CTEs
    "WITH d AS (DELETE FROM {t} WHERE id IN (40, 240, 440) RETURNING *)"
    " INSERT INTO {t} (id, ts, t) SELECT id, ts, 'again' FROM d RETURNING id, t",
    "WITH d AS (DELETE FROM {t} WHERE id = 40 RETURNING *) SELECT id, t, (SELECT count(*) FROM {t}) FROM d",
    "WITH u AS (UPDATE {t} SET i = 100 WHERE id = 40 RETURNING id, i) SELECT u.i, x.i FROM u JOIN {t} x USING (id)",
    "WITH n AS (INSERT INTO {t} (id, ts) VALUES (1000, '2026-01-05Z') RETURNING id) SELECT id, (SELECT count(*)"
    " FROM {t}) FROM n",
    "WITH a AS (UPDATE {t} SET i = 100 WHERE id = 40) UPDATE {t} SET i = 200 WHERE id = 41",
    "WITH a AS (DELETE FROM {t} WHERE id = 40) DELETE FROM {t} WHERE id = 41",
    "WITH a AS (UPDATE {t} SET i = 100 WHERE id = 40) UPDATE {t} SET i = i + 200 WHERE id IN (41, 241)",
    "WITH a AS (UPDATE {t} SET i = 100 WHERE id = 40 RETURNING id), b AS (DELETE FROM {t} WHERE id = 41 RETURNING id),"
    " c AS (INSERT INTO {t} (id, ts) VALUES (1000, '2026-02-05Z') RETURNING id)"
    " SELECT id FROM a UNION ALL SELECT id FROM b UNION ALL SELECT id FROM c",
]
# What Postgres can return since 18: a row as it was and as it is.
OLD_AND_NEW = [
    "UPDATE {t} SET i = i + 1, t = upper(t) WHERE id IN (5, 205, 405) RETURNING old.*, new.*",
    "UPDATE {t} SET i = 1 WHERE id = 5 RETURNING old.i, new.i, i, old.g, new.g",
    "UPDATE {t} SET i = 1 WHERE id IN (5, 405) RETURNING WITH (OLD AS o, NEW AS n) o.i, n.i, n.i - o.i, o.t || n.t",
    "UPDATE {t} SET i = i WHERE id = 5 RETURNING old = new, old.*::text",
    "UPDATE {t} SET n = n / 3, f = 'NaN', y = NULL, j = '[]', a = '{}' WHERE id IN (7, 207, 407)"
    " RETURNING old.*, new.*",
    "UPDATE {t} SET i = 5 WHERE id = 123456 RETURNING old.*, new.*",
    "DELETE FROM {t} WHERE id IN (5, 205, 405) RETURNING old.*, new.*",
    "DELETE FROM {t} WHERE id = 5 RETURNING old.id, new.id, id, new IS NULL",
    "DELETE FROM {t} WHERE t ~ '9$' RETURNING WITH (OLD AS gone) gone.t, new.t",
    "INSERT INTO {t} (id, ts) VALUES (1000, '2026-01-05Z'), (1001, '2026-11-05Z') RETURNING old.*, new.*",
    "INSERT INTO {t} (id, ts) VALUES (1000, '2026-01-05Z') RETURNING WITH (OLD AS o, NEW AS n) o.id, n.id, n.i, n.g",
    "INSERT INTO {t} (id, ts) VALUES (5, '2026-01-01 05:00Z'), (1000, '2026-01-01 05:00Z'), (405, '2026-11-01 05:00Z')"
    " ON CONFLICT DO NOTHING RETURNING old.id, new.id, new.i",
    # moves
    "UPDATE {t} SET ts = ts + interval '31 days' WHERE id IN (3, 4) RETURNING old.ts, new.ts, new.t",
    "UPDATE {t} SET ts = '2026-11-20Z', t = 'moved' WHERE id IN (3, 203) RETURNING old.*, new.*",
    "UPDATE {t} SET ts = '2026-01-20Z', t = 'moved' WHERE id = 450 AND ts > '2026-11-01Z' RETURNING old.*, new.*",
    "UPDATE {t} SET id = id + 1000 WHERE id IN (3, 203, 403) RETURNING old.id, new.id, old.g, new.g",
    # joins
    "UPDATE {t} x SET t = o.w FROM other o WHERE o.k = x.k AND x.id IN (21, 221, 421) RETURNING old.t, new.t, x.t, o.w",
    "UPDATE {t} x SET t = y.t FROM {t} y WHERE y.id = x.id + 200 AND x.id < 6 RETURNING old.*, new.*, y.id",
    "UPDATE {t} x SET t = y.t FROM {t} y WHERE y.id + 1 = x.id AND x.id BETWEEN 198 AND 204"
    " RETURNING WITH (OLD AS o, NEW AS n) o.t, n.t, y.t",
    "UPDATE {t} x SET ts = '2026-11-20Z' FROM other o WHERE o.k = x.k AND x.id IN (21, 221)"
    " RETURNING old.ts, new.ts, o.w",
    "DELETE FROM {t} x USING other o WHERE o.k = x.k AND o.w = 'w4' RETURNING old.id, new.id, o.w",
    "DELETE FROM {t} x USING {t} y WHERE y.id = x.id + 1 AND y.i = 5 RETURNING old.*, new.*, y.*",
    # CTEs, and sub-selects of what is returned
    "WITH u AS (UPDATE {t} SET i = 100 WHERE id IN (40, 440) RETURNING old.i AS was, new.i AS now)"
    " SELECT was, now, (SELECT count(*) FROM {t} WHERE i = 100) FROM u",
    "WITH d AS (DELETE FROM {t} WHERE id IN (40, 240, 440) RETURNING old.*, new.id AS none)"
    " INSERT INTO {t} (id, ts, t) SELECT id, ts, none::text FROM d RETURNING old.t, new.t, new.id",
    "UPDATE {t} SET i = 1 WHERE id IN (5, 405) RETURNING (SELECT w FROM other o WHERE o.k = old.k), (SELECT new.i + 1)",
]
SCRIPTS = [
    # read your own writes, statement after statement
    [
        "UPDATE {t} SET i = 100 WHERE id = 5",
        "SELECT i FROM {t} WHERE id = 5",
        "UPDATE {t} SET i = i + 1 WHERE i = 100 RETURNING i",
        "DELETE FROM {t} WHERE i = 101 RETURNING id",
        "SELECT count(*), sum(i) FROM {t}",
        "INSERT INTO {t} (id, ts, i) VALUES (5, '2026-01-01 05:00Z', 9)",
        "SELECT t, i FROM {t} WHERE id = 5",
        "INSERT INTO {t} (id, ts, i) VALUES (5, '2026-01-01 05:00Z', 10)",
        "UPDATE {t} SET i = 11 WHERE id = 5",
    ],
    [
        "INSERT INTO {t} (id, ts, i) SELECT x, '2026-01-05Z', x FROM generate_series(1000, 1100) x",
        "UPDATE {t} SET t = 'n' || i WHERE id >= 1000 RETURNING t",
        "DELETE FROM {t} WHERE id BETWEEN 1050 AND 1060",
        "UPDATE {t} SET ts = '2026-02-05Z' WHERE id BETWEEN 1000 AND 1010",
        "UPDATE {t} SET ts = '2026-11-05Z' WHERE id BETWEEN 1005 AND 1020",
        "UPDATE {t} SET i = -i WHERE id >= 1000 RETURNING id, ts, i",
        "SELECT ts, count(*), sum(i), max(t) FROM {t} WHERE id >= 1000 GROUP BY ts",
    ],
    # savepoints at depth
    [
        "UPDATE {t} SET i = 1 WHERE id < 10",
        "SAVEPOINT a",
        "UPDATE {t} SET i = 2 WHERE id < 8",
        "SAVEPOINT b",
        "UPDATE {t} SET i = 3 WHERE id < 6",
        "DELETE FROM {t} WHERE id < 3",
        "SAVEPOINT c",
        "INSERT INTO {t} (id, ts) VALUES (1, '2026-01-01 01:00Z')",
        "ROLLBACK TO c",
        "SELECT id, i FROM {t} WHERE id < 12",
        "ROLLBACK TO b",
        "SELECT id, i FROM {t} WHERE id < 12",
        "UPDATE {t} SET i = i + 10 WHERE id < 12",
        "RELEASE b",
        "SELECT id, i FROM {t} WHERE id < 12",
        "ROLLBACK TO a",
        "SELECT id, i FROM {t} WHERE id < 12",
        "UPDATE {t} SET i = i + 10 WHERE id < 12",
    ],
    # a failed statement changes nothing
    [
        "UPDATE {t} SET i = 50 WHERE id < 10",
        "UPDATE {t} SET i = i - 1100 WHERE id < 20",
        "INSERT INTO {t} (id, ts) VALUES (1000, '2026-01-05Z'), (5, '2026-01-01 05:00Z')",
        "UPDATE {t} SET id = 6, ts = '2026-01-01 06:00Z' WHERE id = 5",
        "DELETE FROM {t} WHERE 1 / (id - 7) = 5",
        "SELECT id, i FROM {t} WHERE id < 12",
    ],
    # PL/pgSQL with exception blocks
    [
        "DO $$ BEGIN"
        "  UPDATE {t} SET i = 60 WHERE id = 5;"
        "  BEGIN UPDATE {t} SET i = 61 WHERE id = 6; RAISE EXCEPTION 'no'; EXCEPTION WHEN raise_exception THEN"
        " NULL; END;"
        "  BEGIN UPDATE {t} SET i = -5000 WHERE id = 7; EXCEPTION WHEN check_violation THEN UPDATE {t} SET i ="
        " 62 WHERE id = 7;"
        "  END;"
        "  FOR n IN 10 .. 15 LOOP UPDATE {t} SET i = n + 100 WHERE id = n; END LOOP;"
        "END $$",
        "SELECT id, i FROM {t} WHERE id < 20",
    ],
    # prepared statements
    [
        "SET plan_cache_mode = force_generic_plan",
        "PREPARE up_{t} (int, bigint) AS UPDATE {t} SET i = $1 WHERE id = $2 RETURNING id, i",
        "EXECUTE up_{t} (100, 5)",
        "EXECUTE up_{t} (101, 405)",
        "EXECUTE up_{t} (102, 5)",
        "PREPARE ins_{t} (bigint, timestamptz, text) AS INSERT INTO {t} (id, ts, t) VALUES ($1, $2, $3)"
        " RETURNING id, t, i",
        "EXECUTE ins_{t} (1000, '2026-01-05Z', 'cold')",
        "EXECUTE ins_{t} (1001, '2026-11-05Z', 'hot')",
        "EXECUTE ins_{t} (1000, '2026-01-05Z', 'again')",
        "PREPARE del_{t} (text) AS DELETE FROM {t} WHERE t LIKE $1",
        "EXECUTE del_{t} ('row 1%')",
        # Partitions are passed over when it starts: the first ones, the last ones, all but one.
        "PREPARE since_{t} (timestamptz, timestamptz) AS UPDATE {t} SET i = 103 WHERE ts >= $1 AND ts < $2",
        "PREPARE back_{t} (timestamptz, timestamptz) AS UPDATE {t} SET i = 104 WHERE ts >= $1 AND ts < $2"
        " RETURNING id, i",
        "PREPARE away_{t} (timestamptz, timestamptz) AS DELETE FROM {t} WHERE ts >= $1 AND ts < $2",
        "EXECUTE since_{t} ('2026-02-05Z', '2026-11-03Z')",
        "EXECUTE since_{t} ('2026-01-05Z', '2026-01-06Z')",
        "EXECUTE since_{t} ('2026-11-01Z', '2026-11-02Z')",
        "EXECUTE back_{t} ('2026-02-08Z', '2026-11-02Z')",
        "EXECUTE away_{t} ('2026-02-07Z', '2026-11-02Z')",
        "SET plan_cache_mode = auto",
    ],
    # scans that began before a write, and come to cold rows after it
    [
        "DECLARE first_{t} CURSOR FOR SELECT id, i FROM {t}",
        "DELETE FROM {t} WHERE id % 3 = 0",
        "DECLARE second_{t} CURSOR FOR SELECT id, i FROM {t}",
        "SAVEPOINT a",
        "UPDATE {t} SET i = 105 WHERE id < 450",
        "ROLLBACK TO a",
        "INSERT INTO {t} (id, ts) SELECT x, timestamptz '2026-01-15Z' + x * interval '1 minute'"
        " FROM generate_series(1001, 1060) x",
        "FETCH ALL FROM second_{t}",
        "FETCH ALL FROM first_{t}",
        "DO $$ DECLARE found record; turns int := 0; BEGIN"
        "  FOR found IN SELECT id, ts FROM {t} WHERE id % 20 = 1 LOOP"
        "    turns := turns + 1;"
        "    UPDATE {t} SET ts = ts + interval '31 days' WHERE id = found.id AND ts < '2026-02-01Z';"
        "  END LOOP;"
        "  FOR found IN SELECT id, ts FROM {t} WHERE id % 20 = 2 ORDER BY ts DESC LOOP"
        "    turns := turns + 1;"
        "    DELETE FROM {t} WHERE id = found.id - 200;"
        "  END LOOP;"
        "  PERFORM set_config('test.turns', turns::text, true);"
        "END $$",
        "SELECT current_setting('test.turns')",
        "CREATE FUNCTION pg_temp.later(bigint) RETURNS bigint LANGUAGE plpgsql AS"
        " $$ BEGIN UPDATE {t} SET i = 106 WHERE id = $1 + 200; RETURN $1; END $$",
        "SELECT pg_temp.later(id), i FROM {t} WHERE id % 10 = 5",
        "DROP FUNCTION pg_temp.later",
    ],
    # joins with many rows, each of which is named
    [
        "UPDATE {t} x SET i = o.k, t = o.w FROM other o, generate_series(1, 2) WHERE o.k = x.k",
        "SAVEPOINT a",
        "DELETE FROM {t} x USING other o WHERE o.k = x.k AND o.k < 5",
        "UPDATE {t} x SET i = 1 FROM other o WHERE o.k = x.k",
        "ROLLBACK TO a",
        "UPDATE {t} x SET i = -1000 FROM other o WHERE o.k = x.k AND x.id IN (3, 4)",
        'UPDATE {t} x SET id = x.id + 1000, c = NULL, j = \'{"a": "tab\\t \\\\"}\' FROM other o'
        " WHERE o.k = x.k AND o.k = 3",
        "DELETE FROM {t} x USING other o WHERE o.k = x.k AND o.w = 'w4'",
        "WITH a AS (UPDATE {t} x SET i = 7 FROM other o WHERE o.k = x.k AND o.k < 2)"
        " UPDATE {t} x SET t = 'both' FROM other o WHERE o.k = x.k AND o.k IN (1, 2)",
        "UPDATE {t} x SET k = NULL, i = x.i + 1 FROM other o WHERE o.k = x.k",
        "SELECT sum(i), count(k) FROM {t}",
    ],
    # moves back and forth
    [
        "UPDATE {t} SET ts = '2026-11-20Z' WHERE id = 3",
        "UPDATE {t} SET ts = '2026-01-20Z' WHERE id = 3 AND ts > '2026-11-01Z'",
        "UPDATE {t} SET ts = '2026-02-20Z' WHERE id = 3 AND ts < '2026-02-01Z'",
        "SELECT id, ts, t FROM {t} WHERE id = 3",
        "UPDATE {t} SET ts = '2026-11-20Z' WHERE id = 3 AND ts < '2026-03-01Z'",
        "UPDATE {t} SET i = 70 WHERE id = 3 RETURNING ts, i",
        "DELETE FROM {t} WHERE id = 3",
        "INSERT INTO {t} (id, ts, t) VALUES (3, '2026-01-01 03:00Z', 'back')",
    ],
    # a user's row triggers see and change cold rows as hot ones
    [
        "CREATE TABLE log_{t} (what text)",
        "CREATE FUNCTION before_{t}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        "  IF tg_op = 'DELETE' THEN RETURN CASE WHEN OLD.id % 2 = 0 THEN OLD END; END IF;"
        "  NEW.t := coalesce(NEW.t, '') || ' by ' || tg_op; IF NEW.i = 13 THEN RETURN NULL; END IF; RETURN NEW; END $$",
        "CREATE FUNCTION after_{t}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        "  INSERT INTO log_{t} VALUES (tg_op || ' ' || coalesce(OLD::text, '') || ' > ' || coalesce(NEW::text, ''));"
        "  RETURN NULL; END $$",
        "CREATE TRIGGER b BEFORE INSERT OR UPDATE OR DELETE ON {t} FOR EACH ROW EXECUTE FUNCTION before_{t}()",
        "CREATE TRIGGER a AFTER INSERT OR UPDATE OR DELETE ON {t} FOR EACH ROW EXECUTE FUNCTION after_{t}()",
        "UPDATE {t} SET i = 80 WHERE id IN (3, 4, 203, 403) RETURNING id, t",
        "UPDATE {t} SET i = 13 WHERE id IN (5, 405)",
        "DELETE FROM {t} WHERE id IN (7, 8, 207, 208, 407, 408) RETURNING id",
        "INSERT INTO {t} (id, ts, i) VALUES (1000, '2026-01-05Z', 1), (1001, '2026-02-05Z', 13), (1002,"
        " '2026-11-05Z', 2)"
        " RETURNING id, t",
        "SELECT what FROM log_{t}",
    ],
    # functions that write cold rows while a statement on cold rows is running
    [
        "CREATE FUNCTION bump_{t}(which bigint) RETURNS int LANGUAGE plpgsql AS $$ DECLARE found int; BEGIN"
        "  UPDATE {t} SET i = i + 1 WHERE id = which RETURNING i INTO found; RETURN found; END $$",
        "UPDATE {t} SET t = 'bumped' WHERE id IN (20, 21) AND bump_{t}(id + 200) IS NOT NULL RETURNING id, t",
        "SELECT id, i, t FROM {t} WHERE id IN (20, 21, 220, 221)",
        "SELECT bump_{t}(30), bump_{t}(30), bump_{t}(430)",
        "INSERT INTO {t} (id, ts, i) SELECT x, '2026-01-05Z', bump_{t}(31) FROM generate_series(1000, 1004) x"
        " RETURNING id, i",
        "SELECT id, i FROM {t} WHERE id IN (30, 31, 430)",
    ],
    # triggers that change rows which the very statement that fired them has changed
    [
        "CREATE FUNCTION changed_{t}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        "  IF pg_trigger_depth() > 1 THEN RETURN NULL;"
        "  ELSIF tg_op = 'DELETE' THEN"
        "    UPDATE {t} SET t = 'left by ' || OLD.id WHERE id IN (OLD.id, OLD.id + 1);"
        "    INSERT INTO {t} (id, ts) SELECT OLD.id, OLD.ts WHERE OLD.id % 2 = 0;"
        "  ELSIF NEW.i = 80 THEN UPDATE {t} SET t = t || ' own' WHERE id = NEW.id;"
        "  ELSIF NEW.i = 81 THEN UPDATE {t} SET t = t || ' next', id = id + 1000 WHERE id = NEW.id + 1;"
        "  ELSIF NEW.i = 82 THEN DELETE FROM {t} WHERE id IN (NEW.id + 1, NEW.id + 2);"
        "  ELSIF NEW.i = 83 THEN"
        "    UPDATE {t} x SET t = y.t || s FROM {t} y, generate_series(1, 3, 3) s, generate_series(1, 2)"
        "    WHERE x.id = NEW.id AND y.id = NEW.id - 1;"
        "    WITH d AS (DELETE FROM {t} WHERE id = NEW.id RETURNING *), u AS (UPDATE {t} SET i = 84 WHERE id = NEW.id)"
        "    INSERT INTO {t} (id, ts, t) SELECT id, ts, t || ' again' FROM d;"
        "  END IF; RETURN NULL; END $$",
        "CREATE TRIGGER c AFTER INSERT OR UPDATE OR DELETE ON {t} FOR EACH ROW EXECUTE FUNCTION changed_{t}()",
        "UPDATE {t} SET i = 80 WHERE id IN (3, 4, 203, 403) RETURNING id, t",
        "UPDATE {t} SET i = 81 WHERE id IN (5, 6, 205, 405)",
        "UPDATE {t} SET i = 82 WHERE id IN (10, 11, 210, 410)",
        "UPDATE {t} SET i = 83 WHERE id IN (15, 16, 415)",
        "DELETE FROM {t} WHERE id IN (20, 21, 220, 420)",
        "INSERT INTO {t} (id, ts, i, t) SELECT x, timestamptz '2026-01-05Z' + x % 2 * interval '31 days', 80, 'new'"
        " FROM generate_series(1000, 1003) x RETURNING id, t",
        "SAVEPOINT a",
        "UPDATE {t} SET i = 80 WHERE id IN (30, 31)",
        "ROLLBACK TO a",
        "UPDATE {t} SET i = 80 WHERE id IN (30, 31)",
    ],
    # and functions that do, while it goes on
    [
        "CREATE FUNCTION bump_{t}(which bigint) RETURNS int LANGUAGE plpgsql AS $$ DECLARE found int; BEGIN"
        "  UPDATE {t} SET i = coalesce(i, 0) + 1000 WHERE id = which RETURNING i INTO found;"
        "  RETURN coalesce(found, -1); END $$",
        "CREATE FUNCTION undone_{t}(which bigint) RETURNS int LANGUAGE plpgsql AS $$ BEGIN"
        "  DELETE FROM {t} WHERE id = which; IF which % 2 = 0 THEN RAISE division_by_zero; END IF; RETURN 1;"
        " EXCEPTION WHEN division_by_zero THEN RETURN 2; END $$",
        "UPDATE {t} SET t = 'x' WHERE id IN (20, 21, 220, 420, 421) AND bump_{t}(id - 1) > 0 RETURNING id, t",
        "DELETE FROM {t} WHERE id IN (30, 31, 230, 430, 431) AND bump_{t}(id - 1) > -9",
        "UPDATE {t} SET t = 'y' WHERE id IN (40, 41, 42, 240, 440) AND undone_{t}(id - 1) > 0",
        # Its scans that come to rows later see none of what it has changed, though that is stored by then.
        "UPDATE {t} x SET t = y.t FROM {t} y WHERE y.id + 1 = x.id AND x.id BETWEEN 199 AND 202"
        " AND bump_{t}(x.id + 100) > 0 RETURNING x.id, x.t",
        "INSERT INTO {t} (id, ts, i) SELECT x, timestamptz '2026-01-05Z' + x * interval '1 s', bump_{t}(x - 1)"
        " FROM generate_series(1000, 1002) x RETURNING id, i",
    ],
    # a statement sees what the one that calls it has changed, and that one none of what it calls
    [
        "CREATE FUNCTION other_{t}(x bigint) RETURNS int LANGUAGE plpgsql AS $$"
        " BEGIN UPDATE {t} SET t = 'g' WHERE id = 407; RETURN x; END $$",
        "CREATE FUNCTION counted_{t}() RETURNS int LANGUAGE plpgsql AS $$ DECLARE n int; BEGIN"
        "  UPDATE {t} SET i = other_{t}(id) WHERE id IN (5, 1000); GET DIAGNOSTICS n = ROW_COUNT; RETURN n; END $$",
        "INSERT INTO {t} (id, ts, i) VALUES (1000, '2026-02-05Z', 1) RETURNING counted_{t}()",
        "CREATE FUNCTION added_{t}(which bigint) RETURNS int LANGUAGE plpgsql AS $$ BEGIN"
        "  IF which IN (6, 7) THEN INSERT INTO {t} (id, ts, i) VALUES (1000 + which, '2026-02-05Z', 1); END IF;"
        "  RETURN which; END $$",
        "DELETE FROM {t} WHERE id IN (6, 1006) RETURNING id, added_{t}(id)",
        "UPDATE {t} SET i = 9 WHERE id IN (7, 1007) RETURNING id, added_{t}(id)",
        "SELECT added_{t}(6)",
        "UPDATE {t} SET i = 8 WHERE id IN (6, 1006, 1007)",
        "SELECT id, i FROM {t} WHERE id >= 1000",
    ],
    # a row that was changed by what the statement called is not passed over
    *(
        [
            "CREATE FUNCTION bump_{t}(which bigint) RETURNS int LANGUAGE plpgsql AS $$ DECLARE found int; BEGIN"
            "  UPDATE {t} SET i = coalesce(i, 0) + 1000 WHERE id = which RETURNING i INTO found;"
            "  RETURN coalesce(found, -1); END $$",
            statement,
        ]
        for statement in (
            "UPDATE {t} SET t = 'x' WHERE id IN (20, 21) AND bump_{t}(id + 1) > 0",
            "DELETE FROM {t} WHERE id IN (20, 21) AND bump_{t}(id + 1) > 0",
            "UPDATE {t} x SET t = o.w FROM other o WHERE o.k = x.k AND x.id IN (20, 21) AND bump_{t}(x.id + 1) > 0",
        )
    ),
    # views, and rows they hide
    [
        "CREATE VIEW small_{t} AS SELECT id, ts, i, t FROM {t} WHERE i < 10 WITH CHECK OPTION",
        "UPDATE small_{t} SET i = i + 1 WHERE id IN (6, 206, 406) RETURNING id, i",
        "UPDATE small_{t} SET i = 50 WHERE id = 6",
        "INSERT INTO small_{t} VALUES (1000, '2026-01-05Z', 3, 'x') RETURNING id, i",
        "INSERT INTO small_{t} VALUES (1001, '2026-01-05Z', 30, 'x')",
        "DELETE FROM small_{t} WHERE id IN (6, 1000, 14) RETURNING id",
    ],
    # a cursor over rows that change under it
    [
        "DECLARE seen_{t} CURSOR FOR SELECT id, i FROM {t} WHERE id < 8 ORDER BY id",
        "FETCH 2 FROM seen_{t}",
        "UPDATE {t} SET i = 99 WHERE id < 8",
        "FETCH ALL FROM seen_{t}",
        "SELECT id, i FROM {t} WHERE id < 8",
        "CLOSE seen_{t}",
    ],
    # row locks lock nothing cold and lose nothing
    [
        "SELECT id, i FROM {t} WHERE id IN (5, 405) FOR UPDATE",
        "UPDATE {t} SET i = 90 WHERE id IN (SELECT id FROM {t} WHERE id IN (5, 405) FOR UPDATE) RETURNING id, i",
    ],
]
