"""The model store: what to fetch, from where, how to verify and convert it."""
