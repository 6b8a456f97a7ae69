"""A Django project with the admin, as small as they come: wurk-django's, and for the `idle` measure Celery's."""
