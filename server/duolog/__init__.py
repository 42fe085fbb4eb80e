"""Duolog: a real-time voice call with a self-hosted language model."""

__version__ = "0.1.0"
