"""An app with jobs in `jobs.py`."""
