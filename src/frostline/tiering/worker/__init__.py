"""The worker: `frostline run` looks after every registered table, round after round."""
