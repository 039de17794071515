"""Pipelines made from the recipes: one description of the jobs, written for several systems.

``toolchain/data/pipelines.yml`` says what is done, in the words of GitHub's workflows; ``jobs.py``
fills the recipes in, ``github.py`` and ``gitlab.py`` write it down for a service, and ``run.py``
does the same steps on this machine.
"""
