"""Checks on finished zips: read everything, trust nothing, and run only what is asked for."""

from qbuild.verify.static import verify_zip
from qbuild.verify.verdict import Check, Verdict

__all__ = ["Check", "Verdict", "verify_zip"]
