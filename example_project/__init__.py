"""A small shop that uses wurk-django as a project of yours would."""
