"""Options known before a compile: read from source, looked up in the pin's table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qbuild.bundle.launch.options import help_problems, instead_of
from qbuild.bundle.launch.profile import Setting, profiles_of
from qbuild.bundle.launch.source_options import (
    check_by_table,
    check_in_tree,
    in_table,
    in_tree,
    options_in_source,
    removed_names,
)
from qbuild.errors import RecipeError
from qbuild.recipe.load import known_recipes, load_recipe

SOURCE = r"""
    // {"--commented-out"}, "N",
    add_opt(common_arg(
        {"-c", "--ctx-size"}, "N",
        string_format("size of the context (default: %d, 0 = loaded from model)", params.n_ctx),
        [](common_params & params, int value) { params.n_ctx = value; }
    ).set_env("LLAMA_ARG_CTX_SIZE"));
    add_opt(common_arg(
        {"--jinja"},
        {"--no-jinja"},
        "whether to use jinja template engine for chat",
        [](common_params & params, bool value) { params.use_jinja = value; }
    ).set_examples({LLAMA_EXAMPLE_SERVER, LLAMA_EXAMPLE_CLI}));
    add_opt(common_arg(
        {"-fa", "--flash-attn"}, "[on|off|auto]",
        string_format("set Flash Attention use ('on', 'off', or 'auto', default: '%s')", "auto"),
        [](common_params & params, const std::string & value) { }
    ));
    add_opt(common_arg(
        // a note between
        {"--port"}, "PORT",
        string_format("port to listen (default: %d)", params.port),
        [](common_params & params, int value) { params.port = value; }
    ).set_examples({LLAMA_EXAMPLE_SERVER}));
    add_opt(common_arg(
        {"--host"}, "HOST", "ip", [](common_params & params, const std::string & value) { }
    ).set_examples({LLAMA_EXAMPLE_SERVER}));
    add_opt(common_arg(
        {"--spec-draft-n-max"}, "N", "number of tokens to draft", [](common_params &, int) { }
    ));
    add_opt(common_arg({"-m", "--model"}, "FNAME", "path", [](common_params &, auto &) {}));
    add_opt(common_arg({"-np", "--parallel"}, "N", "slots", [](common_params &, int) {}));
    add_opt(common_arg({"-t", "--threads"}, "N", "threads", [](common_params &, int) {}));
    add_opt(common_arg(
        {"--draft", "--draft-n", "--draft-max"}, "N",
        "the argument has been removed. use --spec-draft-n-max or --spec-ngram-mod-n-max",
        [](common_params & /*params*/, int /*value*/) { arg_removed("use --spec-draft-n-max"); }
    ).set_examples({LLAMA_EXAMPLE_SERVER, LLAMA_EXAMPLE_CLI}));
"""


def tree(folder: Path) -> Path:
    (folder / "common").mkdir(parents=True)
    (folder / "common" / "arg.cpp").write_text(SOURCE)
    return folder


def recipe(tmp_path: Path, flags: str) -> Any:
    path = tmp_path / "mine.toml"
    path.write_text(
        'schema = 1\nname = "mine"\nextends = "avx2"\nsummary = "x"\n'
        f"[launch]\nchat.enabled = false\nbench.enabled = false\n[launch.server.flags]\n{flags}"
    )
    return load_recipe(str(path))


def test_options_are_read_from_the_source(tmp_path: Path) -> None:
    found = {name: each for each in options_in_source(SOURCE) for name in each.option.names}
    assert {"-c", "--ctx-size", "--jinja", "--no-jinja", "-fa", "--port", "--draft-max"} <= {*found}
    assert "--commented-out" not in found
    assert found["--flash-attn"].option.values == ("on", "off", "auto")
    assert found["--no-jinja"].option.hint == ""
    assert found["--draft"].removed == "use --spec-draft-n-max or --spec-ngram-mod-n-max"
    for program, there in (("llama-server", True), ("llama-cli", False)):
        assert ("--port" in (in_tree(tree(tmp_path / program), program) or {})) is there
    assert in_tree(tmp_path, "llama-server") is None


@pytest.mark.parametrize(
    ("flags", "what", "advice"),
    [
        # 19b-recipe-with-removed-flag, 22-flag-never-existed-draft-model of the public reports
        ("draft-max = 16", "has no longer the option `--draft-max 16`", "--spec-draft-n-max"),
        ("draft-n = 4", "has no longer the option", "--spec-draft-n-max"),
        ("ctx-sise = 8192", "has no option `--ctx-sise 8192`", "--ctx-size"),
        ("flash-attn = 'yes'", "does not take that value", "none of on, off, auto"),
        ("ctx-size = true", "needs a value for", "it takes N"),
        ("hostt = 'x'", "has no option `--hostt x`", "--host"),
    ],
)  # fmt: skip
def test_a_wrong_flag_stops_before_the_compile(
    flags: str, what: str, advice: str, tmp_path: Path
) -> None:
    mine = recipe(tmp_path, flags)
    with pytest.raises(RecipeError) as caught:
        check_in_tree(mine, profiles_of(mine), tree(tmp_path / "tree"))
    assert what in caught.value.what
    assert advice in (caught.value.fix or "")
    assert "draft-max" not in (caught.value.fix or "")
    assert "recipe mine: launch.server.flags." in str(caught.value.where)


def pin() -> str:
    from qbuild.bundle.launch.source_options import _table

    return str(_table()["commit"])


@pytest.mark.parametrize(
    ("flags", "what", "advice"),
    [
        ("draft-max = 16", "llama-server has no longer the option `--draft-max 16`",
         "--spec-draft-n-max"),
        ("draft-min = 1", "has no longer the option", "--spec-draft-n-min"),
        ("spec-ngram-size-n = 3", "has no longer the option", "--spec-ngram"),
        ("no-mmap = true", "has no option `--no-mmap`", "--load-mode"),
        ("mlock = true", "has no option `--mlock`", "--load-mode"),
        ("draft-model = 'x.gguf'", "has no option `--draft-model x.gguf`",
         "there is --spec-draft-model"),
        ("kv-backend = 'ssd'", "has no option", "--cache-type-k"),
        ("num-ctx = 1", "has no option", "--ctx-size"),
        ("load-mode = 'ram'", "does not take that value", "mlock"),
    ],
)  # fmt: skip
def test_the_pins_table_needs_no_source(
    flags: str, what: str, advice: str, tmp_path: Path, told: Callable[[str], None]
) -> None:
    mine = recipe(tmp_path, flags)
    with pytest.raises(RecipeError) as caught:
        check_by_table(mine, profiles_of(mine), pin())
    told(f"{caught.value.what}; to do: {caught.value.fix}")
    assert what in caught.value.what
    assert advice in (caught.value.fix or "")
    for name in removed_names():
        assert f"--{name}," not in f"{caught.value.fix},"


@pytest.mark.parametrize("name", sorted(known_recipes()))
@pytest.mark.parametrize("system", ["linux", "windows"])
def test_our_own_recipes_name_options_that_exist(name: str, system: str) -> None:
    mine = load_recipe(name, os=system)
    check_by_table(mine, profiles_of(mine), pin())
    # Where the table does not know a series it is not asked, and nothing was checked above.
    assert in_table(pin(), mine.series, "llama-server"), "run ci/launch_options.py"


def test_another_pin_or_a_series_of_ones_own_is_left_to_the_source() -> None:
    assert in_table("0" * 40, (), "llama-server") is None
    assert in_table(pin(), ("of-my-own",), "llama-server") is None
    assert "--ctx-size" in (in_table(pin(), ("qwen3-mtp",), "llama-cli") or {})


def test_help_and_advice_do_not_offer_what_was_removed() -> None:
    text = (
        "--spec-draft-n-max N                    tokens to draft\n"
        "--draft, --draft-n, --draft-max N       the argument has been removed. use "
        "--spec-draft-n-max\n"
    )
    (found,) = help_problems([Setting(name="draft-max", value="16")], text)
    assert found[1] == (
        "it was removed; there is --spec-draft-n-max (how many tokens are drafted at a time)"
    )
    (found,) = help_problems([Setting(name="draft-maxx", value="16")], text)
    assert "--draft-max" not in found[1].replace("--draft-maxx", "")
    assert "draft-max" in removed_names()
    known = {"spec-draft-model", "draft-extra"}
    assert instead_of("draft-model", known) == "there is --spec-draft-model"
