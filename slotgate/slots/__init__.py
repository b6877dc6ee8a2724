"""Slots: who uses them, what is in them, and how one session makes way for another."""
