"""One file per claim: each compares in one run, interleaved, and prints a ratio."""
