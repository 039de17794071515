"""Runs a finished zip's own host code and kernels on an emulated GPU.

The zip's ``ggml-cuda`` finds our CUDA runtime where NVIDIA's would be; its kernels are the same
device IR that ptxas got, compiled for the CPU, and are found by the sha256 of the fat binaries.
What that does not prove: ptxas' machine code, NVPTX code generation, the driver, speed. Nothing
is fetched and nothing is compiled here.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from qbuild import host
from qbuild.binary.fatbin import container_digests
from qbuild.binary.zip_reader import open_zip
from qbuild.console import Reporter
from qbuild.cuda.device_code import one_digest
from qbuild.emulator import cases, gpus, make, report
from qbuild.emulator.gpus import Gpu
from qbuild.errors import VerifyError
from qbuild.store import Entry, Store
from qbuild.verify import tiny_gguf, tokens
from qbuild.verify.runners import Runner, plan_for
from qbuild.verify.static import read_bundle, scratch_folder
from qbuild.verify.structure import unpack
from qbuild.verify.trials import Programs
from qbuild.verify.verdict import Check, judge, not_run, passed

_ID: Final = "emulated"
_INDEX: Final = "emulated-zip"
_KERNELS: Final = "emulated-kernels"
_BACKEND: Final = {"windows": "ggml-cuda.dll", "linux": "libggml-cuda.so"}
_NVIDIA: Final = ("cudart", "libcudart", "cublas", "libcublas")
_SECONDS: Final = 1800.0
_TOKENS: Final = 16
_PROMPT: Final = "The capital of France is"
_OTHER_PROMPTS: Final = ("Once upon a time there was", "Water boils at a temperature of")
"""Asked where a token differs and few tokens before it say how far the backends are apart."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One way to start the server.

    Args:
        name: For the check's id.
        flags: Its options, given on both backends but for those that place a model on devices.
        cpu_flags: Options of the run on the CPU alone that keep something else off the GPU.
    """

    name: str
    flags: tuple[str, ...]
    cpu_flags: tuple[str, ...] = ()

    @property
    def drafts(self) -> bool:
        """Whether the model proposes tokens to itself."""
        return "--spec-type" in self.flags

    @property
    def on_cpu(self) -> tuple[str, ...]:
        """The options of the run on the CPU alone.

        It does not draft: a draft changes no token, and of drafted ones no margin is known.
        """
        placed = _without(self.flags, {"-sm": 1, "--cpu-moe": 0, "--spec-type": 1})
        return (*placed, "--device", "none", *self.cpu_flags)

    @property
    def undrafted(self) -> tuple[str, ...]:
        """The options of a run on the GPU in which every token is computed one by one."""
        return _without(self.flags, {"--spec-type": 1})


def _without(flags: Sequence[str], dropped: Mapping[str, int]) -> tuple[str, ...]:
    """Return options without some: option → how many values follow it."""
    left = list(flags)
    for flag, values in dropped.items():
        if flag in left:
            at = left.index(flag)
            del left[at : at + 1 + values]
    return tuple(left)


SETTINGS: Final = (
    Setting(name="f16", flags=("-fa", "on")),
    Setting(name="no-flash-attention", flags=("-fa", "off")),
    Setting(name="q8_0", flags=("-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0")),
    Setting(name="q4_0", flags=("-fa", "on", "-ctk", "q4_0", "-ctv", "q4_0")),
)
EXPERTS_ON_CPU: Final = Setting(name="experts-on-cpu", flags=("-fa", "on", "--cpu-moe"))
DRAFTS: Final = Setting(name="drafts", flags=("-fa", "on", "--spec-type", "draft-mtp"))
TWO_DEVICES: Final = (
    Setting(name="split-layer", flags=("-fa", "on", "-sm", "layer")),
    Setting(name="split-tensor", flags=("-fa", "on", "-sm", "tensor")),
)


def emulate_zip(
    path: Path,
    devices: Sequence[Gpu],
    *,
    home: Store,
    models: Sequence[Path] = (),
    reporter: Reporter,
) -> tuple[Check, ...]:
    """Run what is in a zip on emulated GPUs.

    Args:
        path: A zip that :func:`qbuild.verify.verify_zip` accepted.
        devices: The GPUs, in the order of their numbers.
        home: The store that may hold the zip's kernels.
        models: GGUF files whose tokens are compared, besides the tiny model of qbuild's own.
        reporter: Where progress goes.

    Raises:
        VerifyError: The sandbox or Wine does not work.
        ArchiveError: The zip is damaged.
    """
    with prepared(path, devices, home=home, reporter=reporter) as session:
        if isinstance(session, Check):
            return (session,)
        return (session.known, *session.checks(models), session.coverage())


@contextlib.contextmanager
def prepared(
    path: Path, devices: Sequence[Gpu], *, home: Store, reporter: Reporter
) -> Iterator[Session | Check]:
    """Unpack a zip and put the emulated GPU beside its programs.

    Gives a session that runs them or, when something is missing, the check that says what.
    The arguments and errors are those of :func:`emulate_zip`.
    """
    title = "its kernels are prepared for the emulated GPU"
    with open_zip(path) as view, scratch_folder() as scratch:
        total = sum(view.member(name).size for name in view.names)
        with reporter.task("unpack", total=total, unit="bytes") as task:
            unpacked = unpack(view, scratch / "files", task)
        bundle = read_bundle(path.name, unpacked)
        system = bundle.target_os
        library = next(iter(sorted(unpacked.root.rglob(_BACKEND.get(system, "?")))), None)
        if library is None:
            yield not_run(f"{_ID}.kernels", title, "this bundle has no CUDA backend")
            return
        found = find_kernels(home, container_digests(library.read_bytes()))
        if found is None:
            recipe = bundle.manifest.recipe if bundle.manifest else "RECIPE"
            command = f"qbuild build {recipe} --os {system} --emulator"
            yield not_run(f"{_ID}.kernels", title, f"not in the store; make them: {command}")
            return
        index, kernels = found
        put_runtime(library.parent, index, kernels)
        plan = plan_for(
            target_os=system,
            cpu_level=str((bundle.manifest.target if bundle.manifest else {}).get("cpu", "")),
            isa=(),
            qemu_cpu="",
            host_os=host.system(),
            scratch=scratch,
            cache_dir=home.root / "cache",
        )
        runner = next((each for each in plan.runners if each.id in ("native", "wine")), None)
        if runner is None:
            why = plan.missing[0].details if plan.missing else ()
            yield not_run(f"{_ID}.run", "runs on the emulated GPU", *why)
            return
        session = Session(unpacked.root, scratch, system, runner, devices, index, reporter)
        session.install_driver(kernels)
        yield session


def find_kernels(home: Store, digests: Sequence[str]) -> tuple[Entry, Entry] | None:
    """Return index and kernels for a zip's fat binaries, or nothing when the store lacks them.

    The newest kernels win: they may be of another version of the emulator.
    """
    folder = home.root / _INDEX
    entries = (
        sorted(folder.iterdir(), key=lambda each: -each.stat().st_mtime) if folder.is_dir() else []
    )
    for place in entries:
        index = home.find(_INDEX, place.name)
        if index is None or list(index.inputs.get("fat_binaries", ())) != list(digests):
            continue
        kernels = home.find(_KERNELS, str(index.facts.get("kernels")))
        if kernels is not None and home.damage(index) is None and home.damage(kernels) is None:
            return index, kernels
    return None


def put_runtime(folder: Path, index: Entry, kernels: Entry) -> None:
    """Put the emulated GPU's libraries where NVIDIA's lie in an unpacked bundle."""
    for path in folder.iterdir():
        if path.name.startswith(_NVIDIA):
            path.unlink()
    for source in (kernels.path / "files", index.path):
        for path in source.iterdir():
            if path.is_file() and path.name != "entry.json":
                shutil.copyfile(path, folder / path.name)


class Session:
    """One unpacked bundle beside the emulated GPU, and how its programs are started."""

    def __init__(
        self,
        root: Path,
        scratch: Path,
        system: str,
        runner: Runner,
        devices: Sequence[Gpu],
        index: Entry,
        reporter: Reporter,
    ) -> None:
        self.report = scratch / "emulated.tsv"
        self.units: Mapping[str, Sequence[str]] = index.facts["units"]
        self.held = len(index.facts["fat_binaries"])
        self.digest = one_digest(index.inputs["fat_binaries"])
        self.devices = devices
        self.reporter = reporter
        self.system = system
        written = f"Z:{self.report}" if system == "windows" else str(self.report)
        env = {**runner.env, **gpus.environment(devices), "QBUILD_EMULATOR_REPORT": written}
        if system == "windows":
            overrides = env.get("WINEDLLOVERRIDES", "")
            env["WINEDLLOVERRIDES"] = f"{overrides};nvcuda=n" if overrides else "nvcuda=n"
        slow = _SECONDS / 60
        self.runner = replace(runner, env=env, slowdown=slow, memory=12 << 30)
        self.programs = Programs(
            root=root.resolve(),
            suffix=".exe" if system == "windows" else "",
            model=tiny_gguf.write(scratch / "tiny.gguf"),
            scratch=scratch,
        )

    def install_driver(self, kernels: Entry) -> None:
        """Put the driver's library where an installer would: it is looked for only there."""
        if self.system != "windows":
            return
        system32 = Path(self.runner.env["WINEPREFIX"]) / "drive_c" / "windows" / "system32"
        target = system32 / make.DRIVER["windows"]
        target.unlink(missing_ok=True)
        shutil.copyfile(kernels.path / "files" / make.DRIVER["windows"], target)

    @property
    def known(self) -> Check:
        """The check that every fat binary of the bundle has its kernels here."""
        count = sum(len(names) for names in self.units.values())
        title = "its kernels are prepared for the emulated GPU"
        held = f"{self.held} fat binaries, {count} kernels"
        return passed(f"{_ID}.kernels", title, held, f"fat binaries: {self.digest}")

    def checks(self, models: Sequence[Path]) -> Iterator[Check]:
        """List the devices, then compare tokens of every model in every setting."""
        yield self.lists()
        settings = [*SETTINGS, *(TWO_DEVICES if len(self.devices) > 1 else ())]
        every = [(self.programs.model, "\n", setting) for setting in settings]
        every += [(model, _PROMPT, setting) for model in models for setting in settings]
        with self.reporter.task("emulated GPU", total=len(every)) as task:
            for done, (model, prompt, setting) in enumerate(every):
                task.update(done=done, note=f"{model.name} {setting.name}")
                yield self.compare(model, prompt, setting)
            task.update(done=len(every))

    def lists(self) -> Check:
        """Check that the bundle's program lists the emulated devices."""
        started = time.monotonic()
        program = self.programs.find("llama-cli") or self.programs.find("llama-server")
        title = "lists the emulated GPU"
        if program is None:
            return not_run(f"{_ID}.devices", title, "there is no llama-cli in this bundle")
        ran = self.programs.execute(self.runner, [str(program), "--list-devices"])
        problems = []
        lines = [line.strip() for line in ran.stdout.splitlines() if "(emulated)" in line]
        if not ran.ok:
            problems.append(f"{program.name} --list-devices {ran.how()}")
        elif len(lines) != len(self.devices):
            problems.append(f"it lists {len(lines)} devices, not {len(self.devices)}")
        seconds = time.monotonic() - started
        return judge(f"{_ID}.devices", title, problems, *lines, seconds=seconds)

    def compare(
        self, model: Path, prompt: str, setting: Setting, more: Mapping[str, Any] | None = None
    ) -> Check:
        """Compare what a model says on the emulated GPU and on the CPU, in one setting.

        Args:
            model: A GGUF file.
            prompt: What it goes on with.
            setting: How the server is started.
            more: Further keys of the request.
        """
        started = time.monotonic()
        id = f"{_ID}.{model.stem}.{setting.name}"
        title = f"{model.name} says on the GPU what it says on the CPU ({setting.name})"
        try:
            cpu, _ = self._ask(model, prompt, setting.on_cpu, more)
            before = self.reported()
            gpu, drafted = self._ask(model, prompt, (*setting.flags, "-ngl", "99"), more)
            drafting = tokens.compare(gpu, gpu)
            if setting.drafts:
                # A draft may change no token of the GPU's own; against the CPU stands what was
                # computed token by token.
                plain, _ = self._ask(model, prompt, (*setting.undrafted, "-ngl", "99"), more)
                drafting, gpu = tokens.compare(plain, gpu), plain
            both = tokens.compare(cpu, gpu)
            if both.by_few:
                both = self._with_more_tokens(both, model, setting, more)
            # Of drafted tokens no number is told. Both runs are the GPU's, nearer to each other
            # than to the CPU: a margin may be the model's error, not twice of it.
            drafting = replace(drafting, error=max(drafting.error, both.error / 2))
        except VerifyError as error:
            return judge(id, title, [error.what], seconds=time.monotonic() - started)
        kernels = len(report.read(self.reported()[len(before) :]))
        problems = [both.problem] if both.problem else []
        if drafting.problem:
            problems.append(f"with drafts: {drafting.problem}")
        if not both.total:
            problems.append("its first token is no whole character: nothing can be compared")
        if not kernels:
            problems.append("no kernel ran: the program did not use the emulated GPU")
        if setting.drafts and not drafted:
            problems.append("no token was drafted")
        seen = (
            f"{both.equal} of {both.total} tokens equal, log-probabilities within "
            f"{both.error:.2g}, {kernels} kernels"
        )
        if setting.drafts:
            seen += f"; {drafting.equal} of {drafting.total} as without drafts, {drafted} drafted"
        seconds = time.monotonic() - started
        return judge(id, title, problems, seen, seconds=seconds)

    def _with_more_tokens(
        self, both: tokens.Compared, model: Path, setting: Setting, more: Mapping[str, Any] | None
    ) -> tokens.Compared:
        """Measure the backends' difference on other prompts, where an early token was judged.

        The few tokens before it are a small sample: a right kernel was called wrong by five. The
        other answers are judged as well, by all that was measured.
        """
        others = []
        for prompt in _OTHER_PROMPTS:
            cpu, _ = self._ask(model, prompt, setting.on_cpu, more)
            gpu, _ = self._ask(model, prompt, (*setting.undrafted, "-ngl", "99"), more)
            others.append(tokens.compare(cpu, gpu))
        return tokens.judged_together(both, others)

    def reported(self) -> str:
        """Return what the emulated GPU has written of launches so far."""
        return self.report.read_text(encoding="utf-8") if self.report.exists() else ""

    def _ask(
        self, model: Path, prompt: str, flags: Sequence[str], more: Mapping[str, Any] | None
    ) -> tuple[tuple[tokens.Token, ...], int]:
        request: dict[str, Any] = {
            "prompt": prompt,
            "n_predict": _TOKENS,
            "temperature": 0,
            "n_probs": 20,  # some of them forbidden, by a request for random models
            "ignore_eos": True,  # noise may end at once, and would compare two tokens
            "cache_prompt": False,
            "return_tokens": True,
            **(more or {}),
        }
        text = self.serve(model, flags, "/completion", request)
        try:
            return tokens.read_answer(text), tokens.drafted(text)
        except (ValueError, KeyError, IndexError, TypeError) as error:
            raise VerifyError(
                f"llama-server's answer is not what it should be ({type(error).__name__}: {error})"
            ) from None

    def serve(
        self, model: Path, flags: Sequence[str], route: str, request: Mapping[str, Any]
    ) -> str:
        """Start the server with a model, post one request and return the answer's text.

        Args:
            model: A GGUF file.
            flags: Further options of the server.
            route: Where it is posted, e.g. ``/completion``.
            request: What is posted, as JSON.

        Raises:
            VerifyError: There is no server, it does not start, or it answers an error.
        """
        program = self.programs.find("llama-server")
        if program is None:
            raise VerifyError("there is no llama-server in this bundle")
        order = {
            "argv": [
                *self.runner.prefix, str(program), "--model", str(model), "--host", "127.0.0.1",
                "--port", "{port}", "--parallel", "1", "--ctx-size", "256", "--offline",
                "--no-warmup", "--threads", "2", "--poll", "0", *flags,
            ],
            "ready": "/health",
            "seconds": _SECONDS / 2,
            "request_seconds": _SECONDS / 2,
            "requests": [["POST", route, dict(request)]],
        }  # fmt: skip
        ran = self.programs.execute_probe(self.runner, order)
        if not ran.ok:
            raise VerifyError(f"{program.name} {ran.how()}")
        return _answer(program.name, route, ran.stdout, ran.stderr)

    def coverage(self) -> Check:
        """Say how many kernels ran, and what that does not prove."""
        title = "kernels that ran, emulated"
        every = {(unit, name) for unit, names in self.units.items() for name in names}
        ran = every & {(row.unit, row.kernel) for row in report.read(self.reported())}
        if not ran:
            return not_run(f"{_ID}.coverage", title, "no kernel ran")
        names = " + ".join(gpu.name for gpu in self.devices)
        archs = {gpu.arch for gpu in self.devices}
        known = cases.unreached(every, archs.pop()) if len(archs) == 1 else None
        beyond = "how many cannot be reached on this GPU is not known"
        if known is not None:
            beyond = f"{len(known.keys() - ran)} cannot be reached on this GPU"
        return passed(
            f"{_ID}.coverage",
            title,
            f"{len(ran)} of {len(every)} kernels on {names}, against the bundle's own CPU backend; "
            + beyond,
            "emulated, not validated: nothing is said of ptxas' machine code, NVPTX code "
            "generation, the driver or speed",
        )


def _answer(program: str, route: str, stdout: str, stderr: str) -> str:
    """Return the text of a server's only answer."""
    try:
        result = json.loads(stdout)
        problem = result["problem"]
        if not problem:
            answer = result["answers"][0]
            if answer["status"] == 200:
                return str(answer["text"])
            problem = f"{route} answers {answer['status']}: {answer['text'][:200]}"
    except (ValueError, KeyError, IndexError, TypeError) as error:
        problem = f"its answer is not what it should be ({type(error).__name__}: {error})"
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    said = [line for line in lines if "emulated GPU:" in line or "error" in line] or lines
    raise VerifyError(f"{program}: {problem}" + (f"; {said[-1][:200]}" if said else ""))
