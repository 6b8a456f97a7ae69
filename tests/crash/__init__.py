"""Worker processes that are killed, stopped and cut off; nothing may be lost, and what ran twice must be excused."""
