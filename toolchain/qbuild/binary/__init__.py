"""Reads PE, ELF and fat binaries, reads and writes zips: pure data, nothing is ever executed.

Belongs here: what a file of a format says. Not: whether that is right (``verify``) or belongs
into a bundle (``bundle``).
"""
