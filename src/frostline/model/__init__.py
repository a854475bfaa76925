"""Pure descriptions: types, bounds, tables. No I/O, no engine."""
