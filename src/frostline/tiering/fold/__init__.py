"""Folding: versions of cold rows go from the delta into the lake."""
