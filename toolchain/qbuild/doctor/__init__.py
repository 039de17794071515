"""The doctor: what is wrong with this machine, or why a build failed.

:func:`qbuild.doctor.examine.explain` reads a log, :func:`qbuild.doctor.examine.examine` reads facts
about a machine (and a log). Both are pure: whatever is known about the machine comes in as a
:class:`~qbuild.doctor.machine_facts.Facts`. Nothing is imported here: `qbuild model` needs the
facts alone.
"""
