"""All kinds of steps, in the order in which they run: a new step is named here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from qbuild.steps.base import Kind
from qbuild.steps.bundle import BundleStep
from qbuild.steps.compile import CompileStep
from qbuild.steps.configure import ConfigureStep
from qbuild.steps.cuda_tree import CudaTreeStep
from qbuild.steps.npm import NpmStep
from qbuild.steps.openblas import OpenBlasStep
from qbuild.steps.patch import PatchStep
from qbuild.steps.source import SourceStep
from qbuild.steps.stage import StageStep
from qbuild.steps.web_ui import WebUiStep
from qbuild.steps.wheel import WheelStep

KINDS: Final[tuple[Kind, ...]] = (
    SourceStep(),
    PatchStep(),
    WheelStep(),
    OpenBlasStep(),
    CudaTreeStep(),
    NpmStep(),
    WebUiStep(),
    ConfigureStep(),
    CompileStep(),
    StageStep(),
    BundleStep(),
)

BY_NAME: Final[Mapping[str, Kind]] = {kind.kind: kind for kind in KINDS}
""":attr:`Kind.kind` → the kind."""
