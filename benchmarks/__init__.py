"""Measurements on a running stack: `make bench-call`, `make bench-peer`. Not part of the package."""
