"""The front door: one module per command, and what they share.

Belongs here: options, what is printed, exit codes. Each module has ``configure_parser`` and
``execute``; :mod:`qbuild.cli.main` imports the one that was asked for. Not: anything that another
program could want to call.
"""
