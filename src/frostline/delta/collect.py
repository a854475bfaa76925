"""What makes a cold write durable: a trigger that takes the versions a gateway holds and stores them in the delta.

A cold INSERT, UPDATE or DELETE goes to the gateway as any remote one. The gateway answers it and keeps the versions it
results in; the trigger, at the end of the statement, copies them through a foreign table into the delta, in the user's
own transaction. So they are committed, rolled back, locked and recovered by Postgres alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from psycopg.sql import SQL, Composable, Composed, Identifier, Literal

from frostline.catalog.names import FENCE, HELD_SCHEMA, IN_USE, SERVER_NAME
from frostline.delta.tables import SCHEMA, quoted
from frostline.model.tables import Column, Table
from frostline.model.types import delta_type

TRIGGER = "!frostline"  # sorts before any ordinary name, so that a user's triggers see what is stored
SUBJECT = "! frostline policies"  # and this before that
BEFORE = ".before"  # what stores at the beginning of a statement is called the same, and this
VERSION = "stores cold rows, version 15"  # its comment; functions of an older one are made anew by `frostline init`
# A DELETE of a batch takes what is held, whichever that is: the number says how deep the statement stands that stores
# it among those that call each other. The first row it returns says that all of them follow, or that they are too many
# for that. It says so in other signs with every change of what function and gateway say to each other; by those of
# before, which stand here as well, an older gateway is known.
FEW, MANY, OLDER = "{", "}", ("=", "+", "<", ">")
# Two more rows may stand there, about what the gateway cannot know. ALONE: all is right if every statement so far had
# its triggers. INSIDE: it is if they had, and this one goes on after others that it has called.
ALONE, INSIDE = "?", "!"
WAS_RESET = "a setting of Frostline's was reset in this transaction"
# Whether a gateway may be at work for this transaction. Not for a session that has met no foreign partition: it has
# not even loaded postgres_fdw. Asked by itself: a condition is made ready as a whole in every transaction, whatever
# part of it is evaluated.
_LOADED = SQL("pg_catalog.current_setting('postgres_fdw.application_name', true) IS NOT NULL")
# Then by the lock that a gateway holds by the session's pid meanwhile: trying it, and letting go of it, takes a tenth
# of asking postgres_fdw. A session with an application name of its own has to ask: the gateway does not learn its pid.
# Tested in the functions, not by the triggers: Postgres reads a trigger's condition anew for every statement, which
# takes longer than calling them.
_MAY_BE_USED = SQL(
    "(CASE WHEN pg_catalog.current_setting('postgres_fdw.application_name') OPERATOR(pg_catalog.<>) '' THEN true"
    " WHEN pg_catalog.pg_try_advisory_lock({lock}) THEN NOT pg_catalog.pg_advisory_unlock({lock}) ELSE true END)"
).format(lock=SQL("{}, pg_catalog.pg_backend_pid()").format(Literal(IN_USE)))
# What whoever stores compares with what it was computed at.
_CURRENT = SQL("format('%s %s', coalesce(t.snapshot_id::text, '-'), t.staged), t.retained_from, t.seam")


@dataclass(frozen=True)
class ForeignKey:
    """An outbound foreign key, to be checked for cold rows too."""

    name: str
    columns: tuple[str, ...]
    referenced: tuple[str, str]
    keys: tuple[str, ...]
    full: bool  # MATCH FULL


@dataclass(frozen=True)
class Connections:
    """How a session knows that it has used the gateway: postgres_fdw's function, and whether it tells that."""

    schema: str
    used_in_transaction: bool


def held_name(id_: int) -> str:
    return f"held_{id_}"


def references_name(id_: int, number: int = 1) -> str:
    """One for each foreign key, which are numbered."""
    return f"references_{id_}_{number}"


def function_name(id_: int) -> str:
    return f"collect_{id_}"


def begins_name(id_: int) -> str:
    return f"begins_{id_}"


def inside_name(id_: int) -> str:
    """The setting that says, in a transaction, that statements inside others have told that they begin."""
    return f"frostline.inside_{id_}"


def uncollected(table: object) -> str:
    """What is said, here and by the gateway, where changes would be lost."""
    return f"changes of cold rows of {table} were not stored: the transaction cannot be committed"


@dataclass(frozen=True)
class Target:
    """A registered table as what stores its cold writes sees it."""

    table: Table
    id: int
    delta: tuple[str, str]
    hot: tuple[str, str]
    references: tuple[ForeignKey, ...]


def create(target: Target, connections: Connections) -> list[Composed]:
    """The foreign table of what is held, and the functions that store it; made anew when they exist."""
    return [*held(target), *functions(target, connections), *references(target)]


def functions(target: Target, connections: Connections) -> list[Composed]:
    store = Identifier(f"store_{target.id}")
    return [
        # Before, it had no arguments.
        SQL("DROP FUNCTION IF EXISTS frostline.{}()").format(store),
        _store(target),
        # Whoever could call it before the trigger does would pass by what the trigger knows of policies.
        SQL("REVOKE ALL ON FUNCTION frostline.{}(oid, bool) FROM PUBLIC").format(store),
        SQL("COMMENT ON FUNCTION frostline.{}(oid, bool) IS {}").format(store, Literal(VERSION)),
        _after(target.id, target.delta, connections),
        _before(target.id, target.delta, connections),
    ]


def triggers(id_: int, relation: Composable, *, above: bool = False) -> list[Composed]:
    """On the table, every table above it, and each foreign partition, for whoever writes there directly."""
    return _trigger(id_, relation, TRIGGER, None, above=above)


def policy_triggers(id_: int, relation: Identifier, *, above: bool = False) -> list[Composed]:
    """Where there is row-level security: whoever is subject to it.

    Postgres checks new rows of foreign partitions against no policy, so they write none. That a trigger's condition is
    evaluated as whoever wrote the statement is the one thing that nobody can pretend.
    """
    subject = SQL("pg_catalog.row_security_active({}::pg_catalog.regclass)").format(Literal(relation.as_string(None)))
    return _trigger(id_, relation, SUBJECT, subject, above=above)


def _trigger(id_: int, relation: Composable, name: str, when: Composable | None, *, above: bool) -> list[Composed]:
    # Several branches of the table above may be tiered, each with a trigger there.
    suffix = f" {id_}" if above else ""
    arguments = SQL("subject" if name == SUBJECT else "")
    made = []
    for moment, trigger, function in (
        ("AFTER", Identifier(name + suffix), function_name(id_)),
        ("BEFORE", Identifier(name + BEFORE + suffix), begins_name(id_)),
    ):
        made += [
            SQL(
                "CREATE OR REPLACE TRIGGER {} {} INSERT OR UPDATE OR DELETE ON {}"
                " FOR EACH STATEMENT {}EXECUTE FUNCTION frostline.{}({})"
            ).format(
                trigger,
                SQL(moment),
                relation,
                SQL("WHEN ({}) ").format(when) if when else SQL(""),
                Identifier(function),
                arguments,
            ),
            # Logical replication and session_replication_role = replica pass ordinary triggers by.
            SQL("ALTER TABLE {} ENABLE ALWAYS TRIGGER {}").format(relation, trigger),
        ]
    return made


def held(target: Target) -> list[Composed]:
    """The foreign table of what a gateway holds: the delta's columns, and which batch."""
    columns = SQL(", ").join(
        SQL("{} {}").format(Identifier(c.name), SQL(delta_type(c.base_type))) for c in target.table.stored
    )
    name = Identifier(SCHEMA, held_name(target.id))
    return [
        SQL("DROP FOREIGN TABLE IF EXISTS {}").format(name),
        SQL(
            'CREATE FOREIGN TABLE {} ({}, _op "char", _seq bigint, _prev bigint, _batch int) SERVER {}'
            " OPTIONS (schema_name {}, table_name {})"
        ).format(name, columns, Identifier(SERVER_NAME), Literal(HELD_SCHEMA), Literal(str(target.id))),
    ]


def references(target: Target) -> list[Composed]:
    """What new cold rows refer to passes through a table for each foreign key, which Postgres itself checks there.

    It stays for as long as there are older snapshots. They do not show the cold rows, but when the row they refer to
    goes away Postgres looks for what is here now: see 027_references.sql. To Postgres these rows are nothing to keep;
    nor would they be of use after a crash. Not the delta: there superseded versions would hold on to what nobody refers
    to any more.
    """
    made = [SQL("SELECT frostline.drop_references({})").format(target.id)]
    for number, key in enumerate(target.references, 1):
        made += _passing(target, key, Identifier(SCHEMA, references_name(target.id, number)))
    if target.references:
        # Nobody sets that: by an UPDATE of it whoever looks for rows that refer to one has stored what is held.
        made.append(
            SQL(
                "CREATE TRIGGER {} BEFORE UPDATE OF _xid ON {} FOR EACH STATEMENT EXECUTE FUNCTION frostline.{}()"
            ).format(
                Identifier(TRIGGER + BEFORE),
                Identifier(SCHEMA, references_name(target.id)),
                Identifier(begins_name(target.id)),
            )
        )
    return made


def passing_type(column: Column) -> str:
    """Of a column in such a table: wide enough for any that it may get, and NULL is allowed."""
    return delta_type(column.base_type)


def _passing(target: Target, key: ForeignKey, name: Identifier) -> list[Composed]:
    kinds = {column.name: SQL(passing_type(column)) for column in target.table.columns}
    columns = SQL(", ").join(SQL("{c}::{t} AS {c}").format(c=Identifier(c), t=kinds[c]) for c in key.columns)
    return [
        SQL("CREATE UNLOGGED TABLE {} AS SELECT pg_current_xact_id() AS _xid, {} FROM {} WITH NO DATA").format(
            name, columns, Identifier(target.table.schema, target.table.name)
        ),
        SQL(
            "ALTER TABLE {} ADD CONSTRAINT {} FOREIGN KEY ({}) REFERENCES {} ({}) MATCH {}"
            " ON DELETE SET NULL ON UPDATE SET NULL"
        ).format(
            name,
            Identifier(key.name),
            _names(key.columns),
            Identifier(*key.referenced),
            _names(key.keys),
            SQL("FULL" if key.full else "SIMPLE"),
        ),
        SQL("CREATE INDEX ON {} ({})").format(name, _names(key.columns)),
        SQL("CREATE TRIGGER {} BEFORE UPDATE ON {} FOR EACH ROW EXECUTE FUNCTION frostline.refuse_unseen({})").format(
            Identifier(TRIGGER), name, Literal(str(target.table))
        ),
    ]


def _store(target: Target) -> Composed:
    """The function that stores what is held, as whoever registered the table: a writer needs no rights on the delta."""
    table, id_ = target.table, target.id
    stored = tuple(column.name for column in table.stored)
    written = tuple(column.name for column in table.columns if not column.generated)
    passing = SQL("").join(_checked(id_, number, key) for number, key in enumerate(target.references, 1))
    body = SQL(
        """#variable_conflict use_column
DECLARE
  found_rows bigint;
  kept_rows bigint;
  new_rows bigint;
  found_batch int;
  files bool;  -- marks instead of versions: the rows are in files
  said text;  -- a constant to the planner, so that it travels
  computed_at text;
  current_snapshot text;
  current_seam text;
  newest_key {key_type};
  retained text;
  unguarded bool;
  lowest {key_type};
  altered bool;
  told_rows bigint;
  "!depth" int;  -- lines of what calls the statement; no column is called so
  more bool;
  older bool;
  alone bool;
  newest bigint;
  inside bool;
BEGIN
  -- Whoever has altered the table in this transaction has a transaction number.
  IF pg_current_xact_id_if_assigned() IS NOT NULL THEN
    SELECT t.followed IS DISTINCT FROM frostline.shape(t.id) INTO altered FROM frostline.tables t WHERE t.id = {id};
    IF altered THEN
      -- By this very transaction: the gateway cannot see it, and nobody else can have done so since it was asked.
      IF EXISTS (SELECT FROM {held}) THEN
        RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = {altered},
          HINT = 'Nothing was changed. Commit the change of the table first.';
      END IF;
      RETURN;
    END IF;
  END IF;
  -- A scan that began before this statement may come to cold rows after it: of a cursor, a loop, a query that calls
  -- functions. Scans are numbered as they begin, so one more tells the gateway which those are.
  GET DIAGNOSTICS said = PG_CONTEXT;
  -- Of a statement that a client sends, the context is three lines: this function's, its call, the trigger's.
  "!depth" := length(said) - length(replace(said, E'\n', '')) - 2;
  IF "!depth" > 0 OR EXISTS (SELECT FROM pg_cursors c WHERE c.name <> '') THEN
    PERFORM FROM {held} LIMIT 1;
  END IF;
  -- One round trip, in which they count as stored: from here on they are, or the statement fails.
  WITH held AS MATERIALIZED (DELETE FROM {held} h WHERE h._batch = "!depth" RETURNING h.*),
  kept AS (
    INSERT INTO {delta} ({columns}, _op, _seq, _prev)
    SELECT {columns}, held._op, held._seq, held._prev FROM held WHERE held._op IN ('U', 'T')
    ON CONFLICT ({key}, _prev) DO NOTHING RETURNING 1
  ){passing}
  SELECT count(*) FILTER (WHERE held._op IN ('U', 'T')), (SELECT count(*) FROM kept),
    count(*) FILTER (WHERE held._op = 'U'), min(held.{key_column}) FILTER (WHERE held._op = 'U'),
    max(held.{key_column}), max(held._seq) FILTER (WHERE held._op = {few}),
    format('%s %s', coalesce((max(held._prev) FILTER (WHERE held._op = {few}))::text, '-'),
           max(held._batch) FILTER (WHERE held._op = {few})), bool_or(held._op = {many}),
    bool_or(held._op IN ({signs})), bool_or(held._op = {alone}), bool_or(held._op = {inside})
  INTO found_rows, kept_rows, new_rows, lowest, newest_key, told_rows, computed_at, more, older, alone, inside
  FROM held;
  -- Mostly none of this is so. What is asked once takes a fraction of what it takes part by part: Postgres makes every
  -- condition ready anew in every transaction.
  IF older OR alone OR inside OR more THEN
    IF older THEN
      RAISE EXCEPTION USING ERRCODE = '0A000', MESSAGE = {too_old_gateway},
        HINT = 'Nothing was changed. Replace the gateway: frostline init was run with a newer version.';
    END IF;
    IF alone OR inside THEN
      newest := pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 2147483647;
      {unequipped}
      IF said IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = {uncollected},
          DETAIL = format({disabled}, said),
          HINT = 'Nothing was changed. ALTER TABLE ... ENABLE ALWAYS TRIGGER, and then retry the transaction.';
      END IF;
    END IF;
    IF inside AND coalesce(current_setting({setting}, true), '') <> 'yes' THEN
      RAISE EXCEPTION USING ERRCODE = '55000', MESSAGE = {reset},
        HINT = 'Nothing was changed. Let RESET ALL wait until the transaction is over.';
    END IF;
    IF more THEN
      WITH held AS MATERIALIZED (SELECT * FROM {held}),
      kept AS (
        INSERT INTO {delta} ({columns}, _op, _seq, _prev)
        SELECT {columns}, held._op, held._seq, held._prev FROM held WHERE held._op IN ('U', 'T')
        ON CONFLICT ({key}, _prev) DO NOTHING RETURNING 1
      ), moved AS (
        INSERT INTO {hot} ({written}) OVERRIDING SYSTEM VALUE
        SELECT {written} FROM held WHERE held._op = 'H' RETURNING 1
      ){passing}
      SELECT count(*), count(*) FILTER (WHERE held._op IN ('H', 'F')) + (SELECT count(*) FROM kept), max(held._batch),
        count(*) FILTER (WHERE held._op <> 'T'), min(held.{key_column}) FILTER (WHERE held._op <> 'T'),
        max(held.{key_column}) FILTER (WHERE held._op <> 'H'), bool_or(held._op = 'F'), count(*)
      INTO found_rows, kept_rows, found_batch, new_rows, lowest, newest_key, files, told_rows
      FROM held;
    END IF;
  END IF;
  IF kept_rows <> found_rows OR coalesce(told_rows, 0) <> found_rows OR found_rows = 0 THEN
    IF coalesce(told_rows, 0) <> found_rows THEN
      RAISE EXCEPTION USING ERRCODE = 'XX000', MESSAGE = {lost}, HINT = 'Nothing was changed.';
    END IF;
    IF found_rows = 0 THEN
      RETURN;
    END IF;
    RAISE EXCEPTION USING ERRCODE = '40001',
      MESSAGE = {overtaken},
      HINT = 'Nothing was changed. Retry the transaction.';
  END IF;
  -- Whoever changes the lake waits for us from here on, so the snapshot stays what it is until we commit.
  IF files THEN
    PERFORM pg_advisory_xact_lock({fence}, {id});
    PERFORM frostline.stage({id}, found_batch);
  ELSE
    said := pg_advisory_xact_lock_shared({fence}, {id})::text;  -- a PERFORM is a query of its own
  END IF;
  IF current_setting('transaction_isolation') = 'read committed' THEN
    SELECT {current}, {unguarded}
    INTO current_snapshot, retained, current_seam, unguarded
    FROM frostline.tables t WHERE t.id = {id};
  ELSE
    -- A plain read would be of our own, older snapshot.
    SELECT {current}, {unguarded}
    INTO current_snapshot, retained, current_seam, unguarded
    FROM frostline.tables t WHERE t.id = {id} FOR SHARE;
  END IF;
  IF unguarded THEN
    RAISE EXCEPTION USING ERRCODE = '0A000',
      MESSAGE = {unchecked},
      HINT = 'Nothing was changed. ' || CASE WHEN subject THEN 'A role that bypasses row-level security can write them.'
        ELSE 'It was enabled after the table was registered: run frostline init, then roles that bypass it can.' END;
  END IF;
  IF lowest < retained::{key_type} THEN
    RAISE EXCEPTION USING ERRCODE = '23514',
      MESSAGE = format({too_old}, retained),
      DETAIL = format('A row has %s.', lowest),
      HINT = 'Nothing was changed. Rows that old are removed: the table''s option "retention" says when.';
  END IF;
  IF more THEN
    said := format('%s %s %s', {id}, found_batch, found_rows);
    -- One round trip; a SELECT would take three.
    DELETE FROM frostline.call_collected c WHERE c.argument = said RETURNING c.answer INTO computed_at;
  END IF;
  -- A version of a row that is hot by now would be read by nobody: its period came back since it was computed.
  IF computed_at IS DISTINCT FROM current_snapshot
     OR newest_key IS NOT NULL AND (newest_key < current_seam::{key_type}) IS NOT TRUE THEN
    RAISE EXCEPTION USING ERRCODE = '40001',
      MESSAGE = {moved},
      HINT = 'Nothing was changed. Retry the transaction.';
  END IF;
END"""
    ).format(
        key_type=SQL(table.key_type),
        key_column=Identifier(table.key),
        too_old=Literal(f"rows of {_percent(str(table))} with {_percent(table.key)} before %s are not kept any more"),
        current=_CURRENT,
        unguarded=_unguarded(id_),
        unchecked=Literal(f"new cold rows of {table} cannot be checked against policies of row-level security"),
        held=Identifier(SCHEMA, held_name(id_)),
        delta=Identifier(*target.delta),
        columns=_names(stored),
        key=_names(table.primary_key),
        hot=Identifier(*target.hot),
        written=_names(written),
        passing=passing,
        few=Literal(FEW),
        many=Literal(MANY),
        signs=SQL(", ").join(map(Literal, OLDER)),
        too_old_gateway=Literal(f"cold rows of {table} cannot be written through a gateway of an older version"),
        alone=Literal(ALONE),
        unequipped=_unequipped(id_),
        inside=Literal(INSIDE),
        setting=Literal(inside_name(id_)),
        uncollected=Literal(uncollected(table)),
        disabled=Literal("a trigger of Frostline's on %s is, or was in this transaction, disabled or gone"),
        reset=Literal(f"cold rows of {table} cannot be changed: {WAS_RESET}"),
        lost=Literal(f"versions of cold rows of {table} were lost on their way"),
        fence=Literal(FENCE),
        id=Literal(id_),
        altered=Literal(f"cold rows of {table} cannot be written in the transaction that alters the table"),
        overtaken=Literal(f"could not serialize access to cold rows of {table} due to concurrent update"),
        moved=Literal(f"could not serialize access to cold rows of {table}: the lake has changed meanwhile"),
    )
    return SQL(
        """CREATE OR REPLACE FUNCTION frostline.{}(relation oid, subject bool)
RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET row_security = off AS {}"""
    ).format(Identifier(f"store_{id_}"), quoted(body))


def _unguarded(id_: int) -> Composed:
    """Whether there are new rows that policies should be asked about and are not.

    The registry has a column `relation`, too.
    """
    return SQL(
        """new_rows > 0 AND ({store}.subject OR EXISTS (
      SELECT FROM pg_class c WHERE c.oid = {store}.relation AND c.relrowsecurity AND NOT EXISTS (
        SELECT FROM pg_trigger g
        WHERE g.tgrelid = c.oid AND g.tgname IN ({policies}, {policies} || {suffix}) AND g.tgenabled = 'A')))"""
    ).format(store=Identifier(f"store_{id_}"), policies=Literal(SUBJECT), suffix=Literal(f" {id_}"))


def _checked(id_: int, number: int, key: ForeignKey) -> Composed:
    """What refers to anything at all passes; of MATCH FULL also what refers by half, which is refused there."""
    refers = SQL("num_nonnulls({}) > 0" if key.full else "num_nulls({}) = 0").format(_names(key.columns))
    return SQL(
        ", checked_{} AS (INSERT INTO {} SELECT pg_current_xact_id(), {} FROM held WHERE held._op = 'U' AND {})"
    ).format(number, Identifier(SCHEMA, references_name(id_, number)), _names(key.columns), refers)


def _unequipped(id_: int) -> Composed:
    """What this transaction writes rows of the table through without the triggers that belong there.

    A trigger that it has altered itself is none. Who alters it elsewhere waits for whoever has written, so it is as it
    was then; in REPEATABLE READ that may not be seen, and the gateway looks too.
    """
    return SQL(
        """SELECT w.oid::regclass::text INTO said
    FROM (
      SELECT DISTINCT l.relation AS oid FROM pg_locks l LEFT JOIN pg_foreign_table f ON f.ftrelid = l.relation
      WHERE l.pid = pg_backend_pid() AND l.locktype = 'relation' AND l.mode = 'RowExclusiveLock'
        AND (f.ftoptions && ARRAY[{schema}] OR l.relation IN (
          SELECT a.relid FROM frostline.tables t, pg_partition_ancestors(t.relation) a WHERE t.id = {id}))
    ) w CROSS JOIN unnest(ARRAY[{functions}]) AS wanted (name)
    WHERE NOT EXISTS (
      SELECT FROM pg_trigger g JOIN pg_proc p ON p.oid = g.tgfoid
      WHERE g.tgrelid = w.oid AND g.tgenabled = 'A' AND g.tgnargs = 0
        AND p.proname = wanted.name AND p.pronamespace = 'frostline'::regnamespace
        -- A row that is seen though its transaction goes on is our own; it knows the last 32 bits of the number.
        AND pg_xact_status((newest - ((newest - g.xmin::text::bigint) & 4294967295))::text::xid8)
          IS DISTINCT FROM 'in progress')
    LIMIT 1;"""
    ).format(
        schema=Literal(f"schema_name=table {id_}"),
        id=Literal(id_),
        functions=SQL(", ").join(map(Literal, (function_name(id_), begins_name(id_)))),
    )


def _after(id_: int, delta: tuple[str, str], connections: Connections) -> Composed:
    """What a trigger at a statement's end does: as little as can be where it came to hot rows only, see `_MAY_BE_USED`.

    Before 18 a connection that is there may not be in use. Then the gateway is asked in vain, before the delta is
    locked: a later statement may need it to follow the table. (One of before does not know that question.) When it is
    gone, so is whatever it held: the commit would say so if this transaction had anything to do with it.
    """
    store = _stored(id_, delta, SQL("tg_nargs OPERATOR(pg_catalog.>) 0"))
    if not connections.used_in_transaction:
        store = SQL(
            """DECLARE answer text := 'nothing';
      BEGIN
        BEGIN {} EXCEPTION WHEN connection_exception THEN NULL; WHEN feature_not_supported THEN answer := 'held'; END;
        IF answer OPERATOR(pg_catalog.=) 'held' THEN
          {}
        END IF;
      END;"""
        ).format(_asked(Literal(str(id_)), "answer"), _reaching(store))
    body = SQL(
        """BEGIN
  IF {loaded} THEN
    -- One that has told that it begins tells that it ends, though nothing was read by then.
    IF {used} OR {told} THEN
      {look}
      IF FOUND THEN
        IF pg_catalog.current_setting('frostline.strict', true) IS NOT NULL THEN
          PERFORM frostline.refuse_two_tiers({id}, tg_relid);
        END IF;
        {store}
      END IF;
    END IF;
  END IF;
  RETURN NULL;
END"""
    ).format(
        loaded=_LOADED,
        used=_MAY_BE_USED,
        told=_told(id_),
        look=_look(connections),
        id=Literal(id_),
        store=store,
    )
    return _trigger_function(function_name(id_), body)


def _before(id_: int, delta: tuple[str, str], connections: Connections) -> Composed:
    """What a trigger at a statement's beginning does, if another statement calls it: in a function or a trigger.

    Such a statement sees what the other has changed so far, so that is stored now. The gateway knows by its depth
    whether it begins or another part of it does. One of the client's own tells that it begins if others were called
    before, which the setting says. Anybody may reset that, so what is told has to fit together. What is stored was
    written by whoever called this, who may be subject to policies though this statement is not.
    """
    subject = SQL(
        "tg_nargs OPERATOR(pg_catalog.>) 0 OR EXISTS ("
        "SELECT FROM frostline.tables t CROSS JOIN LATERAL pg_catalog.pg_partition_ancestors(t.relation) a"
        " JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) a.relid"
        " WHERE t.id OPERATOR(pg_catalog.=) {} AND c.relrowsecurity)"
    ).format(Literal(id_))
    call = SQL("{} IF inside OPERATOR(pg_catalog.=) 'held' THEN {} END IF;").format(
        _asked(SQL("inside"), "inside"), _stored(id_, delta, subject)
    )
    if not connections.used_in_transaction:
        call = _reaching(call)
    body = SQL(
        """DECLARE
  inside text;  -- what calls this statement
  depth int;  -- and so many lines of it
  first bool;  -- of those that were called, as far as the setting knows
BEGIN
  IF NOT ({loaded}) THEN
    RETURN NULL;
  END IF;
  GET DIAGNOSTICS inside = PG_CONTEXT;
  -- Nothing but this function: the client's own. Of others it is not asked whether the gateway holds its lock: the
  -- statement that calls them may have begun its part of it, and come to its first row, and the lock, after them.
  IF pg_catalog.strpos(inside, E'\\n') OPERATOR(pg_catalog.=) 0 AND NOT {told} THEN
    RETURN NULL;
  END IF;
  depth := pg_catalog.length(inside)
    OPERATOR(pg_catalog.-) pg_catalog.length(pg_catalog.replace(inside, E'\\n', ''));
  {look}
  IF FOUND THEN
    first := NOT {told};
    PERFORM pg_catalog.set_config({setting}, CASE WHEN depth OPERATOR(pg_catalog.>) 0 THEN 'yes' ELSE '' END, true);
    inside := pg_catalog.concat_ws(' ', {id}, depth, CASE WHEN first THEN 1 END);
    {call}
  END IF;
  RETURN NULL;
END"""
    ).format(
        loaded=_LOADED,
        told=_told(id_),
        look=_look(connections),
        setting=Literal(inside_name(id_)),
        id=Literal(str(id_)),
        call=call,
    )
    return _trigger_function(begins_name(id_), body)


def _told(id_: int) -> Composed:
    """Whether statements inside others have told, in this transaction, that they begin."""
    return SQL("coalesce(pg_catalog.current_setting({}, true) OPERATOR(pg_catalog.=) 'yes', false)").format(
        Literal(inside_name(id_))
    )


def _trigger_function(name: str, body: Composed) -> Composed:
    return SQL(
        "CREATE OR REPLACE FUNCTION frostline.{}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS {}"
    ).format(Identifier(name), quoted(body))


def _look(connections: Connections) -> Composed:
    """Sets FOUND: whether this transaction may have used the gateway."""
    used = SQL(" AND c.used_in_xact" if connections.used_in_transaction else "")
    return SQL(
        "PERFORM FROM {}.postgres_fdw_get_connections() c WHERE c.server_name OPERATOR(pg_catalog.=) {}{};"
    ).format(Identifier(connections.schema), Literal(SERVER_NAME), used)


def _asked(argument: Composable, into: str) -> Composed:
    """Asks the gateway what it holds of a table, and tells it how deep a statement that begins stands."""
    return SQL(
        "DELETE FROM frostline.call_begins c WHERE c.argument OPERATOR(pg_catalog.=) {} RETURNING c.answer INTO {};"
    ).format(argument, SQL(into))


def _stored(id_: int, delta: tuple[str, str], subject: Composable) -> Composed:
    """Calls the function that stores what is held.

    The lock is new to the transaction, so its session takes notice of what others have committed. Else it would go on
    with the function it knows, though the gateway has had it made anew, for new columns, after the statement began.
    """
    return SQL("LOCK TABLE ONLY {} IN ROW EXCLUSIVE MODE; PERFORM frostline.{}(tg_relid, {});").format(
        Identifier(*delta), Identifier(f"store_{id_}"), subject
    )


def _reaching(call: Composed) -> Composed:
    """It does nothing when the gateway is gone."""
    return SQL("BEGIN {} EXCEPTION WHEN connection_exception THEN NULL; END;").format(call)


def _percent(name: str) -> str:
    return name.replace("%", "%%")


def _names(columns: tuple[str, ...]) -> Composed:
    return SQL(", ").join(map(Identifier, columns))
