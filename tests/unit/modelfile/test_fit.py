"""What goes where: pure arithmetic on a shape, weights and a machine."""

from dataclasses import replace
from pathlib import Path

import pytest

from qbuild.doctor.machine_facts import CpuFacts, Facts, GpuFacts
from qbuild.errors import UsageError
from qbuild.modelfile.fit import flags, place, rows, suggest
from qbuild.modelfile.machine import Budget, budget_of, cache_types, with_cards
from qbuild.modelfile.memory import GIB, MIB, Context, Weights, compute_estimate, layer_bytes
from qbuild.modelfile.quant import expected_bits, name_says
from qbuild.modelfile.shape import Layer, Shape
from qbuild.recipe.load import load_recipe

TYPES = ("f16", "q8_0", "q4_0")


def dense(layers: int = 36, gib: float = 4.0) -> tuple[Shape, Weights]:
    """About a model of 8 billion parameters, 4 bits: 8 KV heads of 128."""
    shape = Shape(
        arch="qwen3",
        context=40960,
        embedding=4096,
        layers=tuple(Layer(keys=1024, values=1024) for _ in range(layers)),
        heads=32,
        kv_heads=8,
        head_sizes=frozenset({128}),
        vocabulary=151936,
    )
    each = int(gib * GIB / layers)
    weights = Weights(
        input=300 * MIB, output=400 * MIB, layers=(each,) * layers, experts=(0,) * layers
    )
    return shape, weights


def experts() -> tuple[Shape, Weights]:
    """About a model of 35 billion parameters of which 3 are used: 3 of 4 layers recurrent."""
    layers = tuple(
        Layer(keys=512, values=512) if i % 4 == 3 else Layer(state=550_000) for i in range(40)
    )
    shape = Shape(
        arch="qwen35moe",
        context=262144,
        embedding=2048,
        layers=layers,
        heads=16,
        kv_heads=2,
        head_sizes=frozenset({256}),
        vocabulary=248320,
        experts=256,
        experts_used=8,
    )
    weights = Weights(
        input=280 * MIB, output=400 * MIB, layers=(25 * MIB,) * 40, experts=(460 * MIB,) * 40
    )
    return shape, weights


def machine(*vram: float, ram: float | None = 32) -> Budget:
    return Budget(
        gpus=tuple(int(each * GIB) for each in vram), ram=None if ram is None else int(ram * GIB)
    )


def test_no_gpu() -> None:
    found = suggest(*dense(), machine(), types=TYPES)
    assert (found.where, found.gpu_layers, found.gpu) == ("cpu", 0, 0)
    assert found.context.tokens == 8192
    assert found.context.keys == "f16"
    assert found.fits


def test_all_on_the_gpu_and_the_context_grows_with_it() -> None:
    small = suggest(*dense(), machine(8), types=TYPES)
    assert (small.where, small.gpu_layers) == ("gpu", 37)
    assert small.gpu <= 8 * GIB
    large = suggest(*dense(), machine(23), types=TYPES)
    assert large.where == "gpu"
    assert large.context.tokens == 40960  # the model's own
    assert large.context.keys == "f16"
    assert small.context.tokens < large.context.tokens or small.context.keys != "f16"


def test_a_part_on_the_gpu() -> None:
    shape, weights = dense()
    found = suggest(shape, weights, machine(3), types=TYPES)
    assert found.where == "partly"
    assert 2 <= found.gpu_layers <= 36
    assert found.gpu <= 3 * GIB
    more = place(shape, weights, found.context, machine(3.5))
    assert more.gpu_layers > found.gpu_layers
    # one layer more would not have fitted
    layer = weights.layers[0] + layer_bytes(shape.layers[0], shape, found.context)
    assert found.gpu + layer > 3 * GIB


def test_experts_go_to_the_cpu_first() -> None:
    shape, weights = experts()
    found = suggest(shape, weights, machine(5), types=TYPES)
    assert (found.where, found.gpu_layers) == ("experts", 41)
    assert found.context.tokens == 32768
    assert found.gpu <= 5 * GIB
    # the fewest experts that must go: with one layer's more on the GPU it is too much
    assert found.gpu + weights.experts[0] > 5 * GIB
    words = flags(found)
    assert words[words.index("--n-cpu-moe") + 1] == str(found.cpu_moe)
    assert words[words.index("--n-gpu-layers") + 1] == "41"
    assert place(shape, weights, found.context, machine(30)).where == "gpu"


def test_nothing_is_lost() -> None:
    for shape, weights in (dense(), experts()):
        for budget in (machine(), machine(3), machine(5), machine(8), machine(30)):
            context = Context(tokens=8192)
            found = place(shape, weights, context, budget)
            kept = sum(layer_bytes(each, shape, context) for each in shape.layers)
            gpu = compute_estimate(shape, context, weights, shared=found.where != "gpu")
            cpu = compute_estimate(shape, context, weights, shared=False)
            computing = cpu + (gpu if found.gpu_layers else 0)
            assert found.gpu + found.ram == weights.total + kept + computing


def test_tied_embeddings_lie_on_both_sides() -> None:
    shape, own = dense()
    tied = replace(own, output=0, tied=own.input)
    context = Context(tokens=8192)
    one, two = (place(shape, each, context, machine(20)) for each in (own, tied))
    assert one.gpu - two.gpu == own.output - own.input
    assert two.ram == one.ram  # the CPU keeps its copy
    assert place(shape, tied, context, machine()).ram == tied.total + one.ram + one.gpu - (
        own.total + compute_estimate(shape, context, own, shared=False)
    )


def test_too_little_of_everything() -> None:
    found = suggest(*experts(), machine(ram=8), types=TYPES)
    assert found.fits is False
    assert suggest(*experts(), machine(ram=None), types=TYPES).fits is None


def test_what_is_asked_for_is_kept() -> None:
    found = suggest(*dense(), machine(8), types=("q4_0",), tokens=16384, slots=4)
    assert found.context == Context(tokens=16384, keys="q4_0", values="q4_0", slots=4)
    words = " ".join(flags(found))
    assert "--ctx-size 16384" in words
    assert "--cache-type-k q4_0 --cache-type-v q4_0 --parallel 4" in words


def test_two_cards_are_not_filled_to_the_brim() -> None:
    shape, weights = dense()
    one = place(shape, weights, Context(tokens=8192), machine(5.7))
    two = place(shape, weights, Context(tokens=8192), machine(2.85, 2.85))
    assert one.where == "gpu"
    assert two.where == "partly"


def test_a_cache_type_that_does_not_divide_the_heads() -> None:
    shape, weights = dense()
    odd = replace(shape, head_sizes=frozenset({80}))
    (first, *_) = rows(odd, weights, machine(8), types=TYPES, slots=1)
    assert list(first[1]) == ["f16"]
    assert suggest(odd, weights, machine(8), types=TYPES).context.keys == "f16"


def test_the_rows_end_with_the_models_own_context() -> None:
    shape, weights = dense()
    sizes = [size for size, _, _ in rows(shape, weights, machine(8), types=TYPES, slots=1)]
    assert sizes == [4096, 8192, 16384, 32768, 40960]


FACTS = Facts(
    os="linux",
    ram_gb=32.0,
    cpu=CpuFacts(arch="x86_64", flags=()),
    gpus=(GpuFacts(name="NVIDIA GeForce GTX 1060 6GB", vendor="nvidia", vram_gb=6.0),),
)


def test_a_recipe_without_cuda_uses_no_gpu() -> None:
    recipe = load_recipe("avx2")
    found = budget_of(FACTS, recipe)
    assert found.gpus == ()
    assert found.ram == 30 * GIB
    assert found.notes == ("recipe avx2 uses no GPU",)
    assert cache_types(recipe) == TYPES


def test_a_cards_memory_leaves_room() -> None:
    assert budget_of(FACTS, None).gpus == (5 * GIB,)
    small = Facts(ram_gb=4.0, gpus=(GpuFacts(name="MX150", vendor="nvidia", vram_gb=2.0),))
    assert budget_of(small, None).gpus == (3 * GIB // 2,)
    assert budget_of(small, None).ram == 3 * GIB
    unknown = Facts(gpus=(GpuFacts(name="X", vendor="nvidia"), GpuFacts(name="Y", vendor="amd")))
    found = budget_of(unknown, None)
    assert (found.gpus, found.ram) == ((), None)
    assert "how much memory X has is not known" in found.notes[0]


def test_cards_by_name() -> None:
    facts, notes = with_cards(FACTS, ["GTX 1060 3GB", "RTX 3060"], None, 16.0)
    assert [card.vram_gb for card in facts.cards()] == [3.0, 6.0]
    assert facts.memory_gb == 16.0
    assert "RTX 3060 comes with 6 GB (taken) or 8, 12" in notes[0]
    facts, notes = with_cards(FACTS, ["RTX 3060"], 12.0, None)
    assert ([card.vram_gb for card in facts.cards()], notes) == ([12.0], ())
    facts, _ = with_cards(FACTS, [], 3.0, None)
    assert [card.vram_gb for card in facts.cards()] == [3.0]
    with pytest.raises(UsageError, match="no GPU called 'GTX 106O'"):
        with_cards(FACTS, ["GTX 106O"], None, None)
    with pytest.raises(UsageError, match="is not in the table"):
        with_cards(FACTS, ["Quadro M4000"], None, None)
    with pytest.raises(UsageError, match="the machine has none"):
        with_cards(Facts(gpus=()), [], 6.0, None)


def test_every_card_with_a_size_is_in_the_table_of_cards() -> None:
    from qbuild.cuda.arch import find_gpu
    from qbuild.resources import read_table

    for name, sizes in read_table("gpu-memory.toml")["memory"].items():
        assert find_gpu(name).name == name
        assert sizes == sorted(sizes)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Qwen3-8B-Q4_K_M.gguf", "Q4_K_M"),
        ("Qwen3.6-35B-A3B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
        ("model.IQ3_XXS.gguf", "IQ3_XXS"),
        ("m-bf16.gguf", "BF16"),
        ("gpt-oss-20b-mxfp4.gguf", "MXFP4_MOE"),
        ("m-q8_0-00001-of-00002.gguf", "Q8_0"),
        ("Qwen3-4B.gguf", None),
        ("Q4ever.gguf", None),
    ],
)
def test_quantisation_in_a_name(name: str, says: str | None) -> None:
    assert name_says(name) == says


def test_bits_that_a_name_promises() -> None:
    assert expected_bits("Q4_K_M") == expected_bits("Q4_0") == 4.5
    assert expected_bits("UD-Q8_K_XL") == pytest.approx(9.1, abs=0.1)
    assert expected_bits("IQ3_M") == 3.5
    assert expected_bits("F16") == 16
    assert expected_bits("MXFP4_MOE") == 4.25
    assert expected_bits("NONSENSE") is None


def test_paths_stay_out_of_the_way(tmp_path: Path) -> None:
    """A file name with what is no quantisation in it."""
    assert name_says(tmp_path.name + "-v1.0.gguf") is None
