"""The benchmark: wurk-django beside its peers, each on the same Redis and the same jobs, in turns."""
