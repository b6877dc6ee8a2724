"""Stand-ins and helpers for tests, slotgate's own and its users'."""
