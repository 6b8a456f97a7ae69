"""A Django project as small as can be: its jobs write what happens to them into a file."""
