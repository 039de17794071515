"""What this machine is, and which recipe fits it."""

from qbuild.doctor.detect.recommend import Recommendation, recommend

__all__ = ["Recommendation", "recommend"]
