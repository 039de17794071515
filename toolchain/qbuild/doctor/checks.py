"""The checks of facts, in the order in which their findings are told.

A check is a pure function that yields what it finds; it says nothing about what is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from qbuild.doctor import checks_cuda, checks_machine, checks_tools
from qbuild.doctor.findings import Hit
from qbuild.doctor.machine_facts import Facts

Check = Callable[[Facts], Iterator[Hit]]


def run_checks(facts: Facts, seen: frozenset[str] = frozenset()) -> list[Hit]:
    """Return everything the checks find, in their order.

    Args:
        facts: What is known about the machine.
        seen: Ids of diagnoses that a log has shown: some checks are less careful then.
    """
    checks: tuple[Check, ...] = (
        checks_tools.msvc_for_cuda,
        checks_tools.gcc_for_cuda,
        checks_tools.cuda_in_visual_studio,
        partial(checks_tools.first_on_path, seen=seen),
        checks_tools.visual_studio,
        checks_tools.missing_tools,
        checks_cuda.architecture_spelling,
        checks_cuda.architectures_of_toolkit,
        checks_cuda.mixed_toolkits,
        checks_cuda.cuda_folder,
        checks_cuda.kernels_for_card,
        checks_cuda.gpu_without_recipe,
        checks_cuda.gpu_in_wsl,
        checks_cuda.gpu_driver,
        checks_machine.build_folder,
        checks_machine.path_length,
        checks_machine.wsl,
        partial(checks_machine.memory, seen=seen),
        checks_machine.free_disk,
        checks_machine.network,
        checks_machine.processor,
        checks_machine.antivirus,
    )
    return [hit for check in checks for hit in check(facts)]
