"""Every command of CONTRIBUTING.md in one word: ``nox -s unit``; ``nox -l`` lists them.

The sessions run in the environment that nox itself runs in: what they need is what
``pip install -e '.[test,dev,docs]'`` has put there, and nothing is downloaded a second time.
"""

from __future__ import annotations

import nox

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "rooms", "unit"]


def python(session: nox.Session, *words: str) -> None:
    """Run a module of this environment."""
    session.run("python", *words, *session.posargs, external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """Style and format, as they are."""
    session.run("ruff", "check", ".", external=True)
    session.run("ruff", "format", "--check", ".", external=True)


@nox.session(name="format")
def format_(session: nox.Session) -> None:
    """Mend style and format."""
    session.run("ruff", "check", "--fix", ".", external=True)
    session.run("ruff", "format", ".", external=True)


@nox.session
def types(session: nox.Session) -> None:
    """Types: of the package strictly, of tests and tools as far as they say them."""
    session.run("mypy", external=True)
    session.run("mypy", "--config-file", "ci/mypy.ini", external=True)


@nox.session
def rooms(session: nox.Session) -> None:
    """The order of the rooms, and how much stands in them."""
    session.run("lint-imports", external=True)
    python(session, "ci/rooms.py", "--check")


@nox.session
def unit(session: nox.Session) -> None:
    """Unit tests: no process, no network."""
    python(session, "-m", "pytest", "tests/unit", "-n", "2")


@nox.session
def tests(session: nox.Session) -> None:
    """All fast tests."""
    python(session, "-m", "pytest", "-n", "2")


@nox.session
def builds(session: nox.Session) -> None:
    """Real builds: half an hour and more."""
    python(session, "-m", "pytest", "-m", "build")


@nox.session
def browser(session: nox.Session) -> None:
    """The tests in a real Chromium."""
    python(session, "-m", "pytest", "-m", "browser")


@nox.session
def generate(session: nox.Session) -> None:
    """Schema, reference pages, workflows and goldens, after a change of what they come from."""
    python(session, "ci/generate.py")


@nox.session
def docs(session: nox.Session) -> None:
    """The pages of docs/ as a site in build/site; a link that leads nowhere is an error."""
    session.run("mkdocs", "build", env={"NO_MKDOCS_2_WARNING": "1"}, external=True)


@nox.session
def ci(session: nox.Session) -> None:
    """Everything CI runs."""
    session.run("bash", ".ci/run", external=True)
