"""One process that runs jobs: fetch and acknowledge, run, retry, schedule, beat, recover, stop."""
