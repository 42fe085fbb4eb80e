"""Logs and metrics: a leaf that imports nothing of Duolog's."""
