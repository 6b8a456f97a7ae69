"""What the tests stand on: servers of their own, and a proxy that breaks the line to them."""
