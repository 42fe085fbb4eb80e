"""Protocols of the engines and services a call uses, and the values that cross them."""
