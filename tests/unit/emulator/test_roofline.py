"""The least time of a kernel by a GPU's published rates."""

from __future__ import annotations

from typing import Any

import pytest

from qbuild.emulator import counted, gpus, roofline

GTX = gpus.find("GTX 1060")
A100 = gpus.find("A100")
MEMORY = (
    "shared_loads", "shared_stores", "loads", "stores", "bytes_read", "bytes_written", "requests",
    "sectors", "shared_parts", "shared_passes", "issued", "tensor", "distinct",
    "shared_least",
)  # fmt: skip


def kernel(
    blocks: int = 10, threads: int = 2560, launches: int = 1, **numbers: Any
) -> counted.Counted:
    return counted.Counted(
        kernel="k",
        blocks=blocks,
        threads=threads,
        instructions={name: numbers.get(name, 0) for name in counted.CLASSES},
        memory={name: numbers.get(name, 0) for name in MEMORY} | {"launches": launches},
    )


def test_the_rates_are_those_of_the_data_sheets() -> None:
    assert GTX.flops == pytest.approx(4.37e12, rel=0.01)
    assert GTX.bandwidth == pytest.approx(192.2e9, rel=0.001)
    assert A100.flops == pytest.approx(19.5e12, rel=0.01)
    assert A100.bandwidth == pytest.approx(1555e9, rel=0.001)
    assert 2 * A100.tensor_per_clock * A100.sms * A100.clock * 1e6 == pytest.approx(
        312e12, rel=0.01
    )
    p40 = gpus.find("P40")
    assert 8 * p40.dp4a_per_clock * p40.sms * p40.clock * 1e6 == pytest.approx(47e12, rel=0.01)


def test_a_second_of_arithmetic() -> None:
    least = roofline.estimate(kernel(fma=round(GTX.flops / 2)), GTX)
    assert (least.seconds, least.limit, least.busy) == (pytest.approx(1), "arithmetic", 1.0)
    # products of bytes run on the same cores, and take as long
    both = kernel(fma=round(GTX.flops / 2), dp4a=round(GTX.flops / 2))
    assert roofline.estimate(both, GTX).seconds == pytest.approx(2)


def test_a_second_of_memory_counts_each_sector_once() -> None:
    sectors = round(GTX.bandwidth / 32)
    least = roofline.estimate(kernel(distinct=sectors, sectors=5 * sectors, fma=1000), GTX)
    assert (least.seconds, least.limit) == (pytest.approx(1), "memory")


def test_a_second_of_tensor_cores_and_of_shared_memory() -> None:
    clocks = A100.sms * A100.clock * 1e6
    whole = {"blocks": 108, "threads": 108 * 128}
    least = roofline.estimate(kernel(tensor=round(1024 * clocks), **whole), A100)
    assert (least.seconds, least.limit) == (pytest.approx(1), "tensor cores")
    least = roofline.estimate(kernel(shared_least=round(2 * clocks), tensor=7, **whole), A100)
    assert (least.seconds, least.limit) == (pytest.approx(2), "shared memory")


def test_multiprocessors_without_a_block_do_not_help() -> None:
    fma = round(GTX.flops / 2)
    assert roofline.estimate(kernel(blocks=1, fma=fma), GTX).seconds == pytest.approx(10)
    assert roofline.estimate(kernel(blocks=11, fma=fma), GTX).busy == pytest.approx(0.55)


def test_it_is_the_time_of_one_launch() -> None:
    fma = round(GTX.flops / 2)
    least = roofline.estimate(kernel(blocks=40, launches=4, fma=fma, distinct=400), GTX)
    assert least.seconds == pytest.approx(0.25)
    assert least.memory == pytest.approx(100 * 32 / GTX.bandwidth)


def test_a_larger_product_is_told_from_two_small_ones() -> None:
    # 100 instructions once and 7 for each step, in each of the blocks
    short = kernel(blocks=4, threads=1024, fma=4 * (100 + 7 * 64), issued=4 * 64)
    long = kernel(blocks=4, threads=1024, fma=4 * (100 + 7 * 128), issued=4 * 128)
    large = roofline.scaled(short, long, lengths=(64, 128, 4096), blocks=1024)
    assert large.instructions["fma"] == 1024 * (100 + 7 * 4096)
    assert large.memory["issued"] == 1024 * 4096
    assert (large.threads, large.memory["launches"]) == (1024 * 256, 1)


@pytest.mark.parametrize(
    ("registers", "threads", "warps"),
    [(32, 256, 64), (33, 256, 48), (128, 256, 16), (255, 256, 8), (168, 128, 12), (32, 1024, 64)],
)
def test_warps_that_fit(registers: int, threads: int, warps: int) -> None:
    assert roofline.warps(registers, threads, GTX) == warps
