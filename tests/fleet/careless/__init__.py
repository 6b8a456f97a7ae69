"""A careless Django project: importing it opens connections to Redis and to the database."""
