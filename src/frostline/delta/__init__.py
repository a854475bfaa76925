"""Changes to cold rows that are not yet in the lake."""
