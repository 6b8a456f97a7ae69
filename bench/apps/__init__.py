"""What the processes of the Python peers load: their queue, their jobs, and `push_many`, which loads a queue."""
