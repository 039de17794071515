"""Builds llama.cpp's test-backend-ops and llama-bench for one GPU; used by gpu.sh.

    python benchmarks/gpu_build.py --toolchain clang-cuda --arch 90

Prints three lines: the folder of the programs, the folders of NVIDIA's libraries (with colons
between), and the compiler's name and llama.cpp's commit as gpu-validated.toml wants them.
"""

from __future__ import annotations

import argparse
import sys

from qbuild import host, resources
from qbuild.cli.common import cuda_archs
from qbuild.cli.common import store as user_store
from qbuild.console import Plain
from qbuild.errors import QbuildError
from qbuild.recipe.load import load_recipe
from qbuild.recipe.lock import load_lock
from qbuild.steps.builder import Builder
from qbuild.steps.bundle_facts import cuda_compiler
from qbuild.steps.captured import capture
from qbuild.steps.options import BuildOptions
from qbuild.steps.plan import make_plan

PROGRAMS = ("test-backend-ops", "llama-bench")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--toolchain", choices=("clang-cuda", "nvcc"), required=True)
    parser.add_argument("--arch", required=True, help="compute capability without the dot: 90")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--store")
    args = parser.parse_args()
    archs = ", ".join(f'"{arch}"' for arch in cuda_archs([args.arch]))
    recipe = load_recipe(
        "a100",
        os="linux",
        overrides=[f"toolchain.name={args.toolchain}", f"cuda.architectures=[{archs}]",
                   "cuda.driver="],
    )  # fmt: skip
    plan = make_plan(
        recipe,
        load_lock(resources.lockfile()),
        host=host.platform_key(),
        tests=PROGRAMS,
        captured=capture(recipe),
    )
    builder = Builder(plan, user_store(args), Plain(), BuildOptions(jobs=args.jobs))
    with builder.store.in_use():
        programs = builder.result("compile").path / "bin"
        wheels = {wheel.project: wheel for wheel in plan.wheels}
        folders = {
            str((builder.wheel(wheels[project]).path / "files" / file).parent)
            for project, file in plan.toolchain.provides().values()
        }
    print(programs)
    print(":".join(sorted(folders)))
    print(f"{cuda_compiler(plan['configure'].inputs['toolchain'])}\t{plan.pin.commit}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except QbuildError as error:
        print(error.render(), file=sys.stderr)
        sys.exit(error.exit_code)
