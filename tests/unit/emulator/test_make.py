"""What is compiled for the emulated GPU depends on what the recipe's CUDA tree holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from qbuild.emulator import make


@pytest.mark.parametrize("target", ["linux", "windows"])
def test_cublas_is_made_only_where_the_recipe_links_it(target: str, tmp_path: Path) -> None:
    kit = make.Kit(zig=Path("zig"), target=target, cache=tmp_path, headers=tmp_path)

    def libraries() -> set[str]:
        commands = make.runtime_commands(kit, tmp_path / "files", tmp_path)
        return {Path(command[-1]).name for command in commands if "-shared" in command}

    without = {make.RUNTIME[target], make.DRIVER[target]}
    assert libraries() == without
    (tmp_path / "cublas_v2.h").touch()
    assert libraries() == without | {make.CUBLAS[target]}


def test_an_installed_qbuild_has_the_emulators_sources(pytestconfig: pytest.Config) -> None:
    installed = (pytestconfig.rootpath / "CMakeLists.txt").read_text()
    assert "install(DIRECTORY toolchain/emulator DESTINATION" in installed
    assert make.sources().relative_to(pytestconfig.rootpath).as_posix() == "toolchain/emulator"
