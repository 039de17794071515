"""Pipelines made from the recipes: one description of the jobs, written for several systems.

``jobs.py`` says what is done, ``github.py`` and ``gitlab.py`` write it down for a service, and
``run.py`` does the same steps on this machine.
"""

from __future__ import annotations
