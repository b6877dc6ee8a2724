"""Snapshots: the index of what is saved, and the files."""
