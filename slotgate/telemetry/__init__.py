"""What happened and why: told to whoever counts and shows it."""
