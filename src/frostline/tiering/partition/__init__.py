"""A plain table becomes a partitioned one while everybody goes on reading and writing it.

Its rows are copied into a new table, in batches; row triggers log the keys of whatever changes meanwhile, and those
rows are copied again. When both are the same, as a hash of every value says, they change names in one transaction.

 plan.py    which partitions, which key; what is in the way
 shape.py   all that the table has and the new one is to have too
 state.py   how far it is
 copying.py batches, the log, and bringing the copy up to date
 swap.py    the exchange
 run.py     one step after the other, from wherever an earlier run ended
"""
