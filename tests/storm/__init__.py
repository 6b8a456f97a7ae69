"""The storm: real producers and workers under a seeded enemy, and an account that balances to the last job.

`python -m tests.storm --seed N --seconds 120`, or `make storm SEED=N SECONDS=120`.
"""
