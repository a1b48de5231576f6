"""Ways to tell people: one file each, found by their `BACKEND`."""
