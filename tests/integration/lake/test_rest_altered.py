"""A table that is altered, in a REST catalog."""

from __future__ import annotations

from fix_lake import Lake
from integration.tiering.test_restore import PLAIN, both, folded, same


def test_a_column_that_is_added_gets_into_a_rest_catalog(rest_lake: Lake) -> None:
    world = rest_lake.world
    world.run(PLAIN)
    world.register("public.events", "3 months")
    world.archive("public.events")
    both(world, "ALTER TABLE {t} ADD COLUMN more int DEFAULT 7")
    both(world, "UPDATE {t} SET more = 8 WHERE id IN (1, 20, 900)")
    same(world)
    folded(world)
    same(world)
    # A number that was given once is not given again: files have values under it.
    both(world, "ALTER TABLE {t} DROP COLUMN more")
    folded(world)
    both(world, "ALTER TABLE {t} ADD COLUMN other int")
    both(world, "UPDATE {t} SET other = 1 WHERE id = 1")
    folded(world)
    same(world)
    both(world, "ALTER TABLE {t} RENAME COLUMN other TO renamed")
    both(world, "UPDATE {t} SET renamed = 2 WHERE id = 20")
    folded(world)
    same(world)
