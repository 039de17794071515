"""Launch profiles: what a recipe may say, what becomes of it, and which options are refused."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from qbuild.bundle.launch.check import check_flags
from qbuild.bundle.launch.options import (
    help_problems,
    holds_options,
    instead_of,
    options_in_data,
    parse_help,
)
from qbuild.bundle.launch.profile import Setting, command, profiles_of, settings
from qbuild.bundle.launch.scripts import extra_files
from qbuild.cli.main import run
from qbuild.errors import BundleError, RecipeError, UsageError
from qbuild.extras.services import nginx_site, server_profile, systemd_unit, watchdog
from qbuild.recipe.load import as_dict, known_recipes, load_recipe
from qbuild.recipe.model import Recipe
from qbuild.verify.launch import launch_check, launch_steps

HELP = """\
----- common params -----

-h,    --help, --usage                  print usage and exit
-t,    --threads N                      number of CPU threads to use
-c,    --ctx-size N                     size of the prompt context (default: 0)
-fa,   --flash-attn [on|off|auto]       set Flash Attention use ('on', 'off', or 'auto')
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to enable KV cache offloading
-ctk,  --cache-type-k TYPE              KV cache data type for K
                                        allowed values: f32, f16, q8_0, q4_0
                                        (default: f16)
-ctv,  --cache-type-v TYPE              KV cache data type for V
                                        allowed values: f32, f16, q8_0, q4_0
-lm,   --load-mode MODE                 model loading mode (default: auto)
                                        - auto: mmap, unless a device does not support it
                                        - mmap+mlock: mmap + mlock
-ngl,  --gpu-layers, --n-gpu-layers N   max. number of layers to store in VRAM, either an exact
                                        number, 'auto', or 'all' (default: auto)
--spec-type none,draft-simple,draft-mtp
                                        comma-separated list of types
--slot-save-path PATH                   path to save slot kv cache (default: disabled)
-m,    --model FNAME                    model path to load
--host HOST                             ip address
--port PORT                             port to listen
"""
BENCH_HELP = """\
options:
  -h, --help
  -lm, --load-mode <auto|none|mmap> (default: auto)
  -ot --override-tensor <tensor name pattern>=<buffer type>;...
                                                    (default: disabled)
  -p, --n-prompt <n>                                (default: 512)
"""


def recipe(tmp_path: Path, text: str, name: str = "mine") -> Recipe:
    path = tmp_path / f"{name}.toml"
    path.write_text(f'name = "{name}"\nextends = "avx2"\n{text}')
    return load_recipe(str(path))


# -- what a recipe may say --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[launch.server]\ntool = "llama-sever"', "did you mean `llama-server`?"),
        ("[launch.server.flags]\nport = 1", "use `launch.server.port`"),
        ("[launch.server.flags]\nslot-save-path = 'x'", "use `launch.server.slots`"),
        ("[launch.server.flags]\n--ctx = 1", "launch.server.flags.--ctx"),
        ("[launch.server.flags]\nx = ''", "for a switch write `true`"),
        ("[launch.server.flags]\nx = 'a\"b'", "without quotes"),
        ("[launch.server.flags]\nx = nan", "not a number"),
        ("[launch.server.flags]\nx = 'C:\\a\\'", "backslash"),
        ("[launch.server.off]\nctx-size = 1", "is among the flags, too"),
        ("[launch.server.notes]\nctx-sise = 'x'", "did you mean `ctx-size`?"),
        ("[launch.server]\nport = 0", "between 1 and 65535"),
        ("[launch.server]\nthreads = 'all'", "or `physical`"),
        ("[launch.server]\nmodel = '../m.gguf'", "no path below the zip's folder"),
        ("[launch.server]\nmodel = 'C:/m.gguf'", "no path below the zip's folder"),
        ("[launch.server]\nmodel = ''", "no path below the zip's folder"),
        ("[launch.Server]\nsummary = 'x'", "names a file"),
        ("[launch.x]\nmodel = 'm.gguf'", "`launch.x.summary` is required"),
        ("[launch.x]\nsummary = 'x'\nstarts = ['server', 'cat']", "names `cat`"),
        ("[launch.x]\nsummary = 'x'\nstarts = ['chat']", "no server"),
        (
            "[launch.two]\nsummary = 'x'\n[launch.x]\nsummary = 'x'\nstarts = ['server', 'two']",
            "both on port 8080",
        ),
    ],
)
def test_a_profile_that_cannot_become_a_script_is_refused(
    tmp_path: Path, text: str, says: str
) -> None:
    with pytest.raises(RecipeError) as caught:
        recipe(tmp_path, text)
    assert says in str(caught.value)
    assert "mine.toml" in str(caught.value)


def test_a_gpu_recipe_takes_only_cache_types_it_has_kernels_for() -> None:
    with pytest.raises(RecipeError, match=r"q4_0-q8_0.*no flash attention"):
        load_recipe("gtx1060", overrides=["launch.moe.flags.cache-type-v=q8_0"])


def test_profiles_without_their_program_and_switched_off_ones_stay_out(tmp_path: Path) -> None:
    text = "[build]\ntargets = ['llama-cli']\n[launch.all]\nsummary = 'x'\nstarts = ['server']"
    assert list(profiles_of(recipe(tmp_path, text))) == ["chat"]
    assert "chat" not in profiles_of(recipe(tmp_path, "[launch.chat]\nenabled = false"))


def test_a_profile_is_a_command_line(tmp_path: Path) -> None:
    mine = recipe(
        tmp_path,
        "[launch.x]\nsummary = 's'\nslots = 'slots'\nmmproj = 'models/p.gguf'\nport = 9\n"
        "[launch.x.flags]\nctx-size = 8192\ntemp = 0.7\njinja = true\nkv-offload = false\n"
        "cache-type-k = 'q8_0'\n",
    )
    assert command(mine.launch["x"], threads=4) == [
        "llama-server", "--model", "models/model.gguf", "--mmproj", "models/p.gguf",
        "--host", "127.0.0.1", "--port", "9", "--slot-save-path", "slots", "--threads", "4",
        "--ctx-size", "8192", "--temp", "0.7", "--jinja", "--no-kv-offload",
        "--cache-type-k", "q8_0",
    ]  # fmt: skip
    assert "--threads" not in command(mine.launch["x"])
    assert "--port" not in command(mine.launch["bench"])


# -- the scripts ------------------------------------------------------------------------------


@pytest.mark.parametrize("system", ["linux", "windows"])
@pytest.mark.parametrize("name", sorted(known_recipes()))
def test_every_profile_of_every_recipe_gets_its_scripts(name: str, system: str) -> None:
    loaded = load_recipe(name, os=system)
    files = {file.name: file for file in extra_files(loaded)}
    for profile, said in profiles_of(loaded).items():
        kinds = ("bat", "ps1") if system == "windows" else ("sh",)
        assert {f"run-{profile}.{kind}" for kind in kinds} <= files.keys()
        assert (f"config-{profile}.txt" in files) is not bool(said.starts)
    for file in files.values():
        text = file.content.decode("ascii")
        assert not re.search(r"@[A-Z_]+@", text), file.name
        lines = text.count("\n")
        assert text.count("\r\n") == (lines if system == "windows" else 0)
        assert file.executable is file.name.endswith(".sh")
        if file.name.startswith("config-"):
            assert text.startswith("# Settings")
        floor = {"windows": "528.33", "linux": "525.60.13"}[system]
        if file.role == "script" and "START" not in file.name and name in ("gtx1060", "avx2"):
            has = floor in text
            assert has is (
                name == "gtx1060"
                and file.name.partition(".")[0] not in ("run-services", "run-trio")
            ), file.name


def test_the_file_of_settings_explains_itself_and_offers_what_is_off() -> None:
    files = {file.name: file for file in extra_files(load_recipe("gtx1060", os="linux"))}
    text = files["config-moe.txt"].content.decode()
    assert "\nctx-size = 131072\n" in text and "\ncpu-moe\n" in text
    assert "MTP heads.\n#spec-type = draft-mtp\n" in text
    assert "\nmin-p = 0\n" in text and "\ntemp = 1\n" in text
    assert max(len(line) for line in text.splitlines()) <= 78


@pytest.mark.parametrize("name", ["run.ps1", "together.ps1"])
def test_the_powershell_scripts_are_sound_powershell(name: str) -> None:
    """Nothing here runs PowerShell: at least a parser reads every script."""
    tree_sitter = pytest.importorskip("tree_sitter")
    grammar = pytest.importorskip("tree_sitter_powershell")
    parser = tree_sitter.Parser(tree_sitter.Language(grammar.language()))
    broken = parser.parse(b"if ($x { 'unclosed'\n")
    assert broken.root_node.has_error
    seen = 0
    for file in extra_files(load_recipe("gtx1060", os="windows")):
        together = b"Starts each of these" in file.content
        if file.name.endswith(".ps1") and together is (name == "together.ps1"):
            assert not parser.parse(file.content).root_node.has_error, file.name
            seen += 1
    assert seen


# -- options ----------------------------------------------------------------------------------


def test_options_are_found_in_a_programs_data() -> None:
    data = (
        b"\0--ctx-size\0-c\0use --no-mmap, or\0x--not-this\0----- params -----\0--Nor\0--top-k=\0"
    )
    assert options_in_data(data) == {"ctx-size", "no-mmap", "top-k"}


@pytest.mark.parametrize(
    ("name", "program", "holds"),
    [
        ("llama-server", "llama-server", True),
        ("llama-server.exe", "llama-server", True),
        ("libllama-server-impl.so", "llama-server", True),
        ("llama-server-impl.dll", "llama-cli", False),
        ("libllama-common.so.0", "llama-cli", True),
        ("libllama-common.so.0", "llama-bench", False),
        ("ggml-cuda.dll", "llama-server", False),
    ],
)
def test_options_are_looked_for_where_the_program_has_them(
    name: str, program: str, holds: bool
) -> None:
    assert holds_options(name, program) is holds


def test_a_help_text_is_read() -> None:
    options = parse_help(HELP)
    assert options["-ngl"] is options["--n-gpu-layers"]
    assert options["--no-kv-offload"].hint == ""
    assert options["--cache-type-k"].values == ("f32", "f16", "q8_0", "q4_0")
    assert options["--load-mode"].values == ("auto", "mmap+mlock")
    assert options["--flash-attn"].values == ("on", "off", "auto")
    assert options["--spec-type"].values == ("none", "draft-simple", "draft-mtp")
    bench = parse_help(BENCH_HELP)
    assert bench["--load-mode"].values == ("auto", "none", "mmap")
    assert bench["-ot"] is bench["--override-tensor"]
    assert bench["--n-prompt"].hint == "<n>"


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("ctx-size", "8192", ""),
        ("ctx-size", "8k", "`8k` is no number"),
        ("ctx-size", None, "needs a value"),
        ("n-gpu-layers", "all", ""),
        ("n-gpu-layers", "every", "`every` is no number"),
        ("flash-attn", "auto", ""),
        ("flash-attn", "1", "none of on, off, auto"),
        ("cache-type-k", "q3_0", "none of f32, f16, q8_0, q4_0"),
        ("spec-type", "draft-simple,draft-mtp", ""),
        ("spec-type", "draft-simple,mtp", "`mtp` is none of"),
        ("no-kv-offload", None, ""),
        ("kv-offload", "1", "takes no value"),
        ("threads", "physical", ""),
        ("ctx-sise", "1", "there is --ctx-size"),
        ("kv-backend", "ssd", "there is --slot-save-path, --cache-type-k, --cache-type-v"),
        ("no-mmap", None, "there is --load-mode"),
    ],
)
def test_values_are_checked_against_the_help(name: str, value: str | None, wrong: str) -> None:
    problems = help_problems([Setting(name=name, value=value)], HELP)
    assert (problems[0][1] if problems else "") == "" if not wrong else wrong in problems[0][1]


def test_advice_names_only_what_the_program_has() -> None:
    assert "kv-offload" in instead_of("kv-backend", {"kv-offload", "ctx-size"})
    assert "slot-save-path" not in instead_of("kv-backend", {"kv-offload"})
    assert instead_of("quite-something-else", {"ctx-size"}) == ""


def stage(tmp_path: Path, program: str = "llama-server", has: str = "") -> Path:
    folder = tmp_path / "stage"
    (folder / "bin").mkdir(parents=True)
    options = [
        *settings(load_recipe("avx2").launch["server"]),
        Setting(name="slot-save-path", value=""),
    ]
    names = {each.name for each in options} | set(has.split())
    (folder / "bin" / program).write_bytes(b"\0".join(b"--" + n.encode() for n in sorted(names)))
    return folder


def test_an_option_that_does_not_exist_stops_the_build_and_names_what_does(tmp_path: Path) -> None:
    only = "[build]\ntargets = ['llama-server']\n"
    check_flags(recipe(tmp_path, only), stage(tmp_path))
    mine = recipe(tmp_path, f"{only}[launch.server.flags]\nkv-backend = 'ssd'")
    with pytest.raises(BundleError) as caught:
        check_flags(mine, tmp_path / "stage")
    text = str(caught.value)
    assert "llama-server has no option `--kv-backend ssd`" in text
    assert "recipe mine: launch.server.flags.kv-backend" in text
    assert "there is --slot-save-path" in text and "slot folder" in text
    offered = recipe(tmp_path, f"{only}[launch.server.off]\nctx-sise = 1")
    with pytest.raises(BundleError, match=r"launch\.server\.off\.ctx-sise[\s\S]*--ctx-size"):
        check_flags(offered, tmp_path / "stage")


# -- verify -----------------------------------------------------------------------------------


def test_verify_looks_for_scripts_and_options(tmp_path: Path) -> None:
    mine = recipe(tmp_path, "[build]\ntargets = ['llama-server']")
    data = as_dict(mine)
    program = stage(tmp_path) / "bin" / "llama-server"
    whole = {file.name: program for file in extra_files(mine)} | {"llama-server": program}
    (check,) = launch_check(data, whole, "linux")
    assert check.status == "passed" and "server" in check.details[0]
    (check,) = launch_check(data, {"llama-server": program}, "linux")
    assert set(check.details) == {"run-server.sh: is missing", "config-server.txt: is missing"}
    data["launch"]["server"]["flags"]["kv-backend"] = "ssd"
    (check,) = launch_check(data, whole, "linux")
    assert check.status == "failed" and "--slot-save-path" in check.details[0]


@pytest.mark.parametrize("launch", [7, {"x": 7}, {"x": {"summary": "s", "model": "../../etc"}}])
def test_verify_takes_no_claim_that_a_recipe_could_not_make(launch: object) -> None:
    data = {"launch": launch, "build": {"targets": ["llama-server"]}}
    (check,) = launch_check(data, {}, "linux")
    assert check.status == "failed" and "provenance.json" in check.details[0]
    assert launch_steps(data, "linux") == ()


def test_verify_says_nothing_about_a_bundle_without_profiles() -> None:
    assert list(launch_check({}, {}, "linux")) == []


# -- services ---------------------------------------------------------------------------------


def test_a_unit_names_its_folder_and_limits() -> None:
    text = systemd_unit(
        load_recipe("avx2"), "server", folder="/opt/my llama", user="llama", memory="24G"
    )
    assert 'ExecStart="/opt/my llama/run-server.sh"' in text
    assert "MemoryMax=24G" in text and "PrivateDevices=yes" in text
    assert not re.search(r"@[A-Z_]+@", text)
    gpu = systemd_unit(load_recipe("a100"), "server", folder="/o", user="u", memory="80%")
    assert "PrivateDevices=no" in gpu and 'ReadWritePaths="/o/slots"' in gpu


@pytest.mark.parametrize(
    "wrong",
    [
        {"folder": "opt"},
        {"folder": "/opt/../etc"},
        {"folder": '/opt/"x'},
        {"folder": "/opt/a\nUser=root"},
        {"user": "root\nx"},
        {"memory": "lots"},
    ],
)
def test_a_unit_takes_no_value_that_would_change_it(wrong: dict[str, str]) -> None:
    right = {"folder": "/opt/llama", "user": "llama", "memory": "24G"}
    with pytest.raises(UsageError):
        systemd_unit(load_recipe("avx2"), "server", **{**right, **wrong})


def test_which_profile_a_service_runs() -> None:
    assert server_profile(load_recipe("avx2"), None)[0] == "server"
    with pytest.raises(UsageError, match="moe, dense9b, dense4b"):
        server_profile(load_recipe("gtx1060"), None)
    with pytest.raises(UsageError, match="did you mean `moe`"):
        server_profile(load_recipe("gtx1060"), "mo")
    with pytest.raises(UsageError):
        server_profile(load_recipe("gtx1060"), "services")


def test_the_watchdog_is_a_windows_text() -> None:
    text = watchdog(load_recipe("avx2", os="windows"), "server")
    assert text.count("\r\n") == text.count("\n") and not re.search(r"@[A-Z_]+@", text)


@pytest.mark.parametrize(
    ("upstreams", "listen"),
    [(["a"], 80), (["a:1; }"], 80), (["a:99999"], 80), (["a:1", "a:1"], 80), (["a:1"], 0)],
)
def test_nginx_gets_no_value_that_would_change_the_file(upstreams: list[str], listen: int) -> None:
    with pytest.raises(UsageError):
        nginx_site(upstreams, listen=listen)


def test_the_command_writes_scripts_and_refuses_the_wrong_system(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["launch", "scripts", "avx2", "--dir", str(tmp_path / "out"), "-q"]) == 0
    assert os.name != "posix" or (tmp_path / "out" / "run-server.sh").stat().st_mode & 0o111
    assert run(["launch", "systemd", "avx2", "--os", "windows"]) == 2
    assert run(["launch", "show", "avx2", "--json"]) == 0
    assert '"command"' in capsys.readouterr().out


@pytest.mark.parametrize("system", ["linux", "windows"])
def test_a_server_s_script_names_the_page_where_there_is_one(system: str) -> None:
    def scripts(*overrides: str) -> dict[str, str]:
        recipe = load_recipe("avx2", os=system, overrides=list(overrides))
        made = [file for file in extra_files(recipe) if file.name.startswith("run-")]
        return {file.name: file.content.decode("utf-8-sig") for file in made}

    with_page, without = scripts(), scripts("build.ui=false")
    marks = {"sh": "web_ui={}\n", "bat": 'if "{}"=="1" echo Once', "ps1": "if ('{}' -eq '1')"}
    for name, text in with_page.items():
        kind = name.rpartition(".")[2]
        expected = "1" if "server" in name else "0"
        assert marks[kind].format(expected) in text, name
        assert marks[kind].format("0") in without[name], name
