"""The doctor: what is wrong with this machine, or why a build failed.

:func:`explain` reads a log, :func:`examine` reads facts about a machine (and a log). Both are
pure: whatever is known about the machine comes in as a :class:`~qbuild.doctor.facts.Facts`.
"""

from qbuild.doctor.examine import examine, explain
from qbuild.doctor.model import Diagnosis, serious

__all__ = ["Diagnosis", "examine", "explain", "serious"]
