"""Pins made real: git objects, wheels, sdists; origins, mirrors, quarantine.

Belongs here: bringing the bytes that a pin names onto this machine, from whatever place has them,
and proving that they are those bytes. Not: what is done with them.
"""
