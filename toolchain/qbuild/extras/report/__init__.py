"""``qbuild report``: one page a person looks at, about one finished zip.

``collect`` reads the zip and what lies beside it into plain data, ``sizemap``, ``graph`` and
``lanes`` give the drawings their places, ``page`` writes the page. Nothing here judges: verdicts
come from ``verify``.
"""

from qbuild.extras.report.collect import collect
from qbuild.extras.report.data import Report
from qbuild.extras.report.page import render

__all__ = ["Report", "collect", "render"]
