"""The functions that store cold writes have a number: by it `frostline init` knows those of an older version."""

from __future__ import annotations

import hashlib

from frostline.delta import collect
from frostline.delta.collect import Connections, Target
from frostline.model.tables import Column, Table
from frostline.model.types import storage

TABLE = Table(
    oid=1,
    schema="public",
    name="events",
    owner="me",
    columns=(Column(1, "id", "bigint", "bigint", storage("int8")), Column(2, "ts", "date", "date", storage("date"))),
    key="ts",
    key_type="date",
    primary_key=("id", "ts"),
    leaves=(),
)

# Who changes what they do, or how they and the gateway talk, gives them the next number and writes both here:
# with the number of before, functions that are there stay, and a newer gateway does not understand them.
KNOWN = ("stores cold rows, version 15", "dcef0a538af9e2ac")


def test_functions_of_one_number_are_the_same_ones() -> None:
    target = Target(TABLE, 7, ("frostline_delta", "events_7"), ("public", "events_hot"), ())
    made = [
        statement.as_string(None)
        for tells in (True, False)
        for statement in collect.functions(target, Connections("public", used_in_transaction=tells))
    ]
    assert (collect.VERSION, hashlib.sha256("\n".join(made).encode()).hexdigest()[:16]) == KNOWN


def test_signs_of_before_are_not_those_of_now() -> None:
    assert len({collect.FEW, collect.MANY, *collect.OLDER}) == 2 + len(collect.OLDER)
