"""What a program is told of the emulated GPUs."""

from __future__ import annotations

from qbuild.emulator import gpus


def test_devices_are_named_in_their_order_and_no_graph_is_tried() -> None:
    told = gpus.environment([gpus.find("GTX 1060"), gpus.find("A100")])
    first, second = told[gpus.VARIABLE].split("|")
    assert "cc=6.1" in first and "cc=8.0" in second
    # ggml takes a stream that refuses to be captured for an error, from 8.0 on
    assert told["GGML_CUDA_DISABLE_GRAPHS"] == "1"
