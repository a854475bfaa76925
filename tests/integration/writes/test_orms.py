"""SQLAlchemy and Django work on a tiered table as on any: the same program, on the twin, has the same outcome."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import django
import psycopg
import pytest
import sqlalchemy as sa
from django.conf import settings as django_settings
from django.db import IntegrityError, connections, models, transaction
from sqlalchemy import exc, orm

from fix_tiering import World
from integration.writes import machine
from integration.writes.machine import PLAIN, TIERED

COLD, LATER, HOT = (dt.datetime(2026, month, 10, tzinfo=dt.UTC) for month in (1, 2, 11))
Seen = list[object]

if not django_settings.configured:
    django_settings.configure(DATABASES={}, USE_TZ=True)
    django.setup()


def same(moving: World, program: Callable[[str], Seen]) -> None:
    """Run on both; what it saw and what is there afterwards is the same."""
    with psycopg.connect(moving.dsn, autocommit=True) as reader:
        machine.reset(reader)
        tiered, plain = program(TIERED), program(PLAIN)
        assert tiered == plain
        assert len(tiered) > 0
        machine.same_rows(reader)


@pytest.fixture
def engine(moving: World) -> Iterator[sa.Engine]:
    made = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(moving.dsn))
    yield made
    made.dispose()


def mapped(table: str) -> Any:
    """A class whose rows carry their version in the column i."""

    class Base(orm.DeclarativeBase):
        pass

    class Thing(Base):
        __tablename__ = table
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True, autoincrement=False)
        ts: orm.Mapped[dt.datetime] = orm.mapped_column(sa.DateTime(timezone=True), primary_key=True)
        i: orm.Mapped[int] = orm.mapped_column()
        t: orm.Mapped[str | None]
        __mapper_args__ = {"version_id_col": i}  # noqa: RUF012

    return Thing


def test_sqlalchemy(moving: World, engine: sa.Engine) -> None:
    def program(table: str) -> Seen:
        thing, seen = mapped(table), Seen()
        with orm.Session(engine) as session:
            session.add_all([thing(id=100 + x, ts=(COLD, LATER, HOT)[x % 3], t=f"new {x}") for x in range(9)])
            session.commit()
            seen.append([(x.id, x.i, x.t) for x in session.scalars(sa.select(thing).order_by(thing.id))])
            one, two = session.get_one(thing, (100, COLD)), session.get_one(thing, (102, HOT))
            one.t = two.t = "changed"
            session.commit()
            session.refresh(one)
            seen.append((one.t, one.i, two.t, two.i))
            one.ts = LATER  # another partition
            session.flush()
            with pytest.raises(exc.IntegrityError), session.begin_nested():
                session.add(thing(id=101, ts=LATER, t="there already"))
            with session.begin_nested() as inner:
                session.delete(session.get_one(thing, (104, LATER)))
                session.flush()
                seen.append(session.scalar(sa.select(sa.func.count()).select_from(thing)))
                inner.rollback()
            session.delete(session.get_one(thing, (103, COLD)))
            session.commit()
            changed = session.execute(sa.update(thing).where(thing.id > 104).values(t=thing.t + "!"))
            seen.append(changed.rowcount)  # type: ignore[attr-defined]
            returned = sa.update(thing).where(thing.id < 8).values(t="low").returning(thing.id, thing.ts)
            seen.append(sorted(tuple(row) for row in session.execute(returned)))
            seen.append(session.execute(sa.delete(thing).where(thing.id == 105)).rowcount)  # type: ignore[attr-defined]
            locked = sa.select(thing).where(thing.id == 106).with_for_update()
            session.scalars(locked).one().t = "locked"
            session.commit()
        return seen

    same(moving, program)


def test_sqlalchemy_notices_who_was_first(moving: World, engine: sa.Engine) -> None:
    def program(table: str) -> Seen:
        thing, seen = mapped(table), Seen()
        for key in ((5, COLD), (8, HOT)):  # as the table is filled
            with orm.Session(engine, expire_on_commit=False) as session, orm.Session(engine) as other:
                mine, theirs = session.get_one(thing, key), other.get_one(thing, key)
                mine.t, theirs.t = "first", "second"
                session.commit()
                with pytest.raises(orm.exc.StaleDataError):
                    other.flush()
                other.rollback()
                seen.append((theirs.t, theirs.i))
        return seen

    same(moving, program)


@contextmanager
def django_database(world: World) -> Iterator[str]:
    """The database under an alias of its own."""
    alias = f"world_{uuid.uuid4().hex[:8]}"
    found = psycopg.conninfo.conninfo_to_dict(world.dsn)
    connections.databases[alias] = {
        **{"ENGINE": "django.db.backends.postgresql", "NAME": found["dbname"], "USER": found["user"]},
        **{"PASSWORD": found["password"], "HOST": found["host"], "PORT": found["port"]},
        **{"ATOMIC_REQUESTS": False, "AUTOCOMMIT": True, "CONN_MAX_AGE": 0, "CONN_HEALTH_CHECKS": False},
        **{"OPTIONS": {}, "TIME_ZONE": None, "TEST": {}},
    }
    try:
        yield alias
    finally:
        connections[alias].close()
        del connections.databases[alias]


def model(table: str) -> Any:
    class Meta:
        app_label = f"app_{uuid.uuid4().hex[:8]}"
        db_table = table
        managed = False

    fields = {
        "id": models.IntegerField(primary_key=True),
        "ts": models.DateTimeField(),
        "i": models.IntegerField(default=1),
        "t": models.TextField(null=True),
    }
    return type("Thing", (models.Model,), {**fields, "Meta": Meta, "__module__": __name__})


def undone(alias: str, thing: Any) -> None:
    """A block whose second statement fails; the keys are there already."""
    with transaction.atomic(using=alias):
        thing.objects.using(alias).filter(id=116).update(t="undone")
        thing.objects.using(alias).bulk_create([thing(id=200, ts=COLD), thing(id=117, ts=LATER)])


def test_django(moving: World) -> None:
    def program(table: str) -> Seen:
        thing, seen = model(table), Seen()
        with django_database(moving) as alias:
            things = thing.objects.using(alias)
            things.create(id=100, ts=COLD, t="cold")
            things.create(id=101, ts=HOT, t="hot")
            things.bulk_create([thing(id=110 + x, ts=(COLD, LATER, HOT)[x % 3], i=x, t="bulk") for x in range(30)])
            one = things.get(id=100)
            one.t = "saved"
            one.save()
            one.refresh_from_db()
            seen.append((one.t, things.filter(t="bulk").count(), things.aggregate(models.Sum("i"))))
            seen.append(things.filter(ts__lt=LATER, id__gte=110).update(i=models.F("i") + 100, t="updated"))
            seen.append(list(things.filter(i__gte=100).order_by("id").values_list("id", "i", "t")))
            changed = list(things.filter(id__in=[112, 113, 114]))
            for each in changed:
                each.t = f"bulk update {each.id}"
            seen.append(things.bulk_update(changed, ["t"]))
            with transaction.atomic(using=alias):
                things.filter(id=115).delete()
                with pytest.raises(IntegrityError):
                    undone(alias, thing)
                seen.append(list(things.filter(id__in=[115, 116]).values_list("id", "t")))
                locked = things.select_for_update().get(id=110)
                locked.i += 1
                locked.save(update_fields=["i"])
            seen.append(things.bulk_create([thing(id=110, ts=COLD, i=5)], ignore_conflicts=True)[0].pk)
            seen.append(things.get_or_create(id=140, defaults={"ts": COLD, "t": "made"})[1])
            seen.append(things.update_or_create(id=140, defaults={"ts": COLD, "t": "made again"})[1])
            moved = things.get(id=119)
            moved.ts = HOT  # to the other tier
            moved.save(force_update=True)
            seen.append(one.delete()[0])
            seen.append(list(things.order_by("id").values_list("id", "ts", "i", "t")))
        return seen

    same(moving, program)
