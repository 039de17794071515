"""Checks on finished zips: read everything, trust nothing, and run only what is asked for."""

from qbuild.verify.model import Check, Verdict
from qbuild.verify.static import verify_zip

__all__ = ["Check", "Verdict", "verify_zip"]
