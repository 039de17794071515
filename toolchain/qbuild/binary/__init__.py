"""Reads PE, ELF and fat binaries: pure data, read-only, nothing is ever executed."""
