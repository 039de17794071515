"""Captures of made-up Linux and Windows machines: right facts, nothing personal."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qbuild.doctor.capture import capture, with_recipe
from qbuild.doctor.capture_tools import parse_vswhere, release_of
from qbuild.doctor.examine import examine
from qbuild.doctor.machine_facts import Facts, GpuFacts, parse_facts
from qbuild.doctor.privacy import kernel_release, mask_path
from qbuild.doctor.probe import HostProbe
from qbuild.doctor.schema import facts_schema_text
from qbuild.recipe.load import load_recipe

from .fake_machine import FakeMachine

CUDA = "C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA"
VS = "C:\\Program Files\\Microsoft Visual Studio\\2022\\Community"
VSWHERE = "C:\\Program Files (x86)\\Microsoft Visual Studio\\Installer\\vswhere.exe"
DISPLAY = "SYSTEM\\CurrentControlSet\\Control\\Class\\{4d36e968-e325-11ce-bfc1-08002be10318}"
FILE_SYSTEM = "SYSTEM\\CurrentControlSet\\Control\\FileSystem"
DEFENDER = "SOFTWARE\\Microsoft\\Windows Defender"


def windows() -> FakeMachine:
    return FakeMachine(
        system_="windows",
        release_="10.0.22631",
        features=(13, 14, 17, 36, 37, 38, 39, 40, 60),
        page=936,
        variables={
            "PATH": "C:\\Strawberry\\c\\bin;C:\\Users\\Jane Doe\\bin;"
            f"{CUDA}\\v12.4\\bin;C:\\Windows",
            "CUDA_PATH": f"{CUDA}\\v11.8",
            "https_proxy": "http://jane:secret@proxy.example:3128",
            "PIP_CERT": "C:\\Users\\Jane Doe\\ca.pem",
        },
        programs={
            "nvcc": f"{CUDA}\\v12.4\\bin\\nvcc.exe",
            "git": "C:\\Program Files\\Git\\cmd\\git.exe",
        },
        outputs={
            f"{CUDA}\\v12.4\\bin\\nvcc.exe": "Cuda compilation tools, release 12.4, V12.4.131\n",
            "C:\\Program Files\\Git\\cmd\\git.exe": "git version 2.45.1.windows.1\n",
            VSWHERE: json.dumps(
                [
                    {"installationVersion": "16.11.33", "installationPath": "C:\\VS2019"},
                    {"installationVersion": "17.14.36109.1", "installationPath": VS},
                ]
            ),
        },
        files={f"{CUDA}\\v11.8\\version.json": '{"cuda": {"version": "11.8.0"}}'},
        folders={
            "C:\\Strawberry\\c\\bin": ("gcc.exe", "perl.exe"),
            "C:\\Users\\Jane Doe\\bin": ("link.exe",),
            f"{CUDA}\\v12.4\\bin": ("nvcc.exe",),
            CUDA: ("v11.8", "v12.4"),
            f"{VS}\\VC\\Tools\\MSVC": ("14.29.30133", "14.44.35207"),
            f"{VS}\\MSBuild\\Microsoft\\VC\\v170\\BuildCustomizations": (
                "CUDA 11.8.props",
                "masm.props",
            ),
        },
        values={
            (FILE_SYSTEM, "LongPathsEnabled"): 1,
            (f"{DEFENDER}\\Real-Time Protection", "DpaDisabled"): 0,
            (f"{DEFENDER}\\Exclusions\\Paths", "C:\\Users\\Jane Doe"): 0,
            ("SOFTWARE\\Microsoft\\Windows Kits\\Installed Roots\\10.0.22621.0", ""): "",
            (f"{DISPLAY}\\0000", "DriverDesc"): "NVIDIA GeForce GTX 1060 6GB",
            (f"{DISPLAY}\\0000", "ProviderName"): "NVIDIA",
            (f"{DISPLAY}\\0000", "DriverVersion"): "27.21.14.7196",
            (f"{DISPLAY}\\0000", "HardwareInformation.qwMemorySize"): 6 << 30,
            (f"{DISPLAY}\\0001", "DriverDesc"): "AMD Radeon(TM) Graphics",
            (
                "HARDWARE\\DESCRIPTION\\System\\CentralProcessor\\0",
                "ProcessorNameString",
            ): "  Ryzen  5 ",
        },
    )


STORE = "C:\\Users\\Jane Doe\\AppData\\Local\\qbuild\\Cache"


def capture_of(machine: FakeMachine, **more: Any) -> Facts:
    given_ = {"store": STORE, "jobs": 4, "cwd": "D:\\geheim\\projekt", "personal": ("Jane Doe",)}
    return capture(probe=machine, **{**given_, **more})


def test_a_windows_machine() -> None:
    facts = capture_of(windows())
    assert facts.os == "windows"
    assert facts.os_version == "10.0.22631"
    assert facts.cpu is not None
    assert facts.cpu.model == "Ryzen 5"
    assert "avx2" in facts.cpu.flags
    assert facts.nvcc == "12.4.131"
    assert (facts.cuda, facts.cuda_path_version) == ("11.8.0", "11.8.0")
    assert facts.cuda_path == f"{CUDA}\\v11.8"
    assert facts.cuda_toolkits == ("11.8", "12.4")
    assert facts.visual_studio == ("17.14.36109.1", "16.11.33")
    assert (facts.toolset, facts.other_toolsets) == ("14.44", ("14.29",))
    assert facts.windows_sdks == ("10.0.22621.0",)
    assert facts.vs_buildcustomizations == ("CUDA 11.8.props",)
    assert facts.long_paths_enabled is True
    assert facts.code_page == 936
    assert (facts.defender_realtime, facts.defender_excluded) == (True, True)
    assert facts.gpus == (
        GpuFacts(name="NVIDIA GeForce GTX 1060 6GB", vendor="nvidia", driver="471.96", vram_gb=6.0),
        GpuFacts(name="AMD Radeon(TM) Graphics", vendor="amd"),
    )
    assert facts.tools == {"git": "2.45.1", "cmake": None, "ninja": None}
    assert facts.missing_ca_files == ("PIP_CERT",)
    assert facts.build_root == "C:\\Users\\xxxx xxx\\AppData\\Local\\qbuild\\Cache"
    assert facts.path == (
        "C:\\Strawberry\\c\\bin",
        "C:\\Users\\xxxx xxx\\bin",
        f"{CUDA}\\v12.4\\bin",
    )


def test_what_the_doctor_finds_on_it() -> None:
    ids = [each.id for each in examine(capture_of(windows()))]
    assert "cuda-path-elsewhere" in ids
    assert "msvc-too-new" in ids
    assert "space-in-build-root" in ids
    assert "ca-file-missing" in ids
    assert "proxy-variables" not in ids


def test_nothing_personal_is_captured() -> None:
    text = json.dumps(capture_of(windows()).as_json())
    for secret in ("Jane", "Doe", "jane", "secret", "proxy.example", "geheim", "projekt"):
        assert secret not in text


def test_a_capture_is_what_the_schema_says_and_reads_back() -> None:
    schema = json.loads(facts_schema_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    for facts in (capture_of(windows()), capture_of(linux()), Facts(), Facts(gpus=())):
        data = json.loads(json.dumps(facts.as_json()))
        jsonschema.validate(data, schema)
        assert parse_facts(data) == facts


def linux() -> FakeMachine:
    return FakeMachine(
        release_="6.6.87.2-microsoft-standard-WSL2",
        disk_="hdd",
        variables={
            "PATH": "/usr/bin:/home/jane/bin::/usr/bin",
            "https_proxy": "http://a",
            "HTTPS_PROXY": "http://b",
            "SSL_CERT_FILE": "/etc/ssl/cert.pem",
        },
        programs={"gcc": "/usr/bin/gcc", "clang": "/usr/bin/clang"},
        outputs={"/usr/bin/gcc": "14.2.0\n", "/usr/bin/clang": "Debian clang version 19.1.7 (3)\n"},
        files={
            "/proc/cpuinfo": "vendor_id : AuthenticAMD\nmodel name : AMD X\n"
            "flags : sse4_2 avx vme hypervisor\n",
            "/etc/os-release": 'PRETTY_NAME="Debian"\nID=debian\nVERSION_ID="12"\n',
            "/etc/ssl/cert.pem": "cert",
            "/sys/fs/cgroup/memory.max": f"{4 << 30}\n",
            "/sys/bus/pci/devices/0000:01:00.0/class": "0x030000\n",
            "/sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n",
            "/sys/bus/pci/devices/0000:01:00.0/device": "0x1c03\n",
            "/sys/bus/pci/devices/0000:00:1f.0/class": "0x060100\n",
            "/sys/bus/pci/devices/0000:00:1f.0/vendor": "0x8086\n",
        },
        folders={
            "/usr/bin": ("gcc", "ls"),
            "/sys/bus/pci/devices": ("0000:00:1f.0", "0000:01:00.0"),
        },
    )


def test_a_linux_machine() -> None:
    facts = capture_of(linux(), store="/home/jane/.cache/qbuild", cwd="/mnt/c/jane/src")
    assert facts.is_wsl
    assert facts.kernel == "6.6.87.2-microsoft-standard-WSL2"
    assert facts.os_version == "debian 12"
    assert facts.cpu is not None
    assert facts.cpu.flags == ("avx", "hypervisor", "sse4_2")
    assert facts.virtual is True
    assert facts.disk is None  # a virtual disk's word for itself
    assert (facts.gcc, facts.clang) == ("14.2.0", "19.1.7")
    assert facts.memory_limit_gb == 4.0
    assert facts.memory_gb == 4.0
    assert facts.gpus == (GpuFacts(name="NVIDIA card (PCI id 1c03)", vendor="nvidia"),)
    assert facts.proxy == ("https_proxy", "HTTPS_PROXY")
    assert facts.proxy_differs == ("https_proxy",)
    assert facts.missing_ca_files == ()
    assert facts.store == "/home/xxxx/.cache/qbuild"
    assert facts.cwd == "/mnt/c/xxxx/xxx"
    assert facts.path == ("/usr/bin",)
    assert "no-git" in [each.id for each in examine(facts)]


def test_proxies_that_agree() -> None:
    machine = linux()
    machine.variables["HTTPS_PROXY"] = machine.variables["https_proxy"]
    facts = capture_of(machine)
    assert facts.proxy == ("https_proxy", "HTTPS_PROXY")
    assert facts.proxy_differs == ()


def test_a_driver_in_wsl_is_held_to_the_floor_of_windows() -> None:
    """525.60 is enough on Linux, Windows needs 528.33, and WSL shows the driver of Windows."""
    facts = Facts(os="linux", cuda="12.4", gpu="GTX 1060", driver="526.98")
    assert examine(facts) == ()
    assert [each.id for each in examine(replace(facts, wsl=True))] == ["driver-too-old"]


def test_nvml_knows_better_than_the_bus() -> None:
    machine = linux()
    card = GpuFacts(name="NVIDIA GeForce GTX 1060", vendor="nvidia", capability="6.1")
    machine.cards = (card,)
    assert capture_of(machine).gpus == (card,)


def test_no_limit_is_no_limit() -> None:
    machine = linux()
    machine.files["/sys/fs/cgroup/memory.max"] = "max\n"
    machine.files["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "9223372036854771712\n"
    assert capture_of(machine).memory_limit_gb is None


def test_a_recipe_adds_what_it_asks_for() -> None:
    facts = with_recipe(Facts(os="linux"), load_recipe("laptop"))
    assert (facts.recipe, facts.recipe_os, facts.recipe_cpu) == ("laptop", "windows", "x86-64-v3")
    assert facts.toolchain == "zig"


@pytest.mark.parametrize(
    ("path", "masked"),
    [
        ("C:\\Users\\Jane Doe\\qb", "C:\\Users\\xxxx xxx\\xx"),
        ("C:\\Users\\李雷\\qb", "C:\\Users\\éé\\xx"),
        ("/home/jane/.cache/qbuild", "/home/xxxx/.cache/qbuild"),
        ("/root/secret-2024", "/root/xxxxxx-0000"),
        ("/mnt/c/src", "/mnt/c/xxx"),
        ("/usr/local/cuda-12.4", "/usr/local/cuda-12.4"),
        (f"{CUDA}\\v12.4", f"{CUDA}\\v12.4"),
        ("\\\\wsl.localhost\\Ubuntu\\home\\me", "\\\\wsl.localhost\\xxxxxx\\home\\xx"),
        ("\\\\fileserver\\share\\x", "\\\\xxxxxxxxxx\\share\\x"),
        ("C:/Users/Jane/AppData/Local", "C:/Users/xxxx/AppData/Local"),
        ("", ""),
    ],
)
def test_masked_folders(path: str, masked: str) -> None:
    assert mask_path(path) == masked
    assert len(masked) == len(path)


@given(st.text(alphabet=st.characters(codec="utf-8", exclude_characters="/\\:"), min_size=2))
def test_a_user_name_is_masked_whatever_it_is(name: str) -> None:
    masked = mask_path(f"/home/{name}/src", (name,))
    assert len(masked) == len(f"/home/{name}/src")
    part = masked.split("/")[2]
    assert all(each in "xé0" or not (each.isalnum() or ord(each) > 127) for each in part)


def test_a_user_who_is_called_like_a_program_is_masked() -> None:
    assert mask_path("/home/cuda/cuda", ("cuda",)) == "/home/xxxx/xxxx"


@pytest.mark.parametrize(
    ("release", "kept"),
    [
        ("6.6.87.2-microsoft-standard-WSL2", "6.6.87.2-microsoft-standard-WSL2"),
        ("4.4.0-19041-Microsoft", "4.4.0-Microsoft"),
        ("6.1.0-38-amd64", "6.1.0"),
        ("6.9.0-jane-laptop", "6.9.0"),
    ],
)
def test_kernel_releases(release: str, kept: str) -> None:
    assert kernel_release(release) == kept


def test_output_that_is_none_of_what_is_expected() -> None:
    assert release_of(None) is None
    assert release_of("nvcc: command failed") is None
    assert release_of("Cuda compilation tools, release 13.0") == "13.0"
    assert parse_vswhere("not json") == []
    assert parse_vswhere('[{"installationVersion": "17.0"}, 3]') == []


def test_an_empty_machine_is_no_trouble() -> None:
    facts = capture_of(FakeMachine(disk_=None))
    assert facts.gpus == ()
    assert [each.id for each in examine(facts)] == ["no-git"]
    assert capture_of(FakeMachine(system_="windows")).visual_studio == ()


class Powered(HostProbe):
    """A Linux machine with these power supplies."""

    def __init__(self, **supplies: dict[str, str]) -> None:
        self.supplies = supplies

    def system(self) -> str:
        return "linux"

    def listing(self, path: str) -> tuple[str, ...]:
        assert path == "/sys/class/power_supply"
        return tuple(self.supplies)

    def read(self, path: str) -> str | None:
        *_, supply, name = path.split("/")
        return self.supplies[supply].get(name)


def test_a_battery_makes_a_laptop_and_a_mouse_does_not() -> None:
    mains = {"type": "Mains\n"}
    assert Powered(AC=mains, BAT0={"type": "Battery\n"}).battery()
    assert Powered(macsmc={"type": "Battery\n", "scope": "System\n"}).battery()
    mouse = {"type": "Battery\n", "scope": "Device\n"}
    assert not Powered(AC=mains, hidpp_battery_0=mouse).battery()
    assert not Powered().battery()
