"""Turns written text into what a voice may say. Pure string functions."""
