"""``python -m qbuild``."""

import sys

from qbuild.cli.main import run

sys.exit(run())
