"""Checks on finished zips: read everything, trust nothing, and run only what is asked for.

Belongs here: every judgement about a zip, also of one that qbuild did not make, and the sandbox it
is run in. Nothing here knows how a zip came about: it goes by the bytes and the papers.
"""

from qbuild.verify.static import verify_zip
from qbuild.verify.verdict import Check, Verdict

__all__ = ["Check", "Verdict", "verify_zip"]
