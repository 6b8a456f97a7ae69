"""An app with jobs in `tasks.py`, as people who come from Celery call it."""
