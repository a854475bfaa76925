"""Archiving a period: plan, capture, export, verify, swap, drop; one file per step."""
