"""The version of the package, read by the build, the heartbeat and the process title."""

VERSION = "0.1.0"
