#!/usr/bin/env bash
# qbuild on a Windows machine made of Wine and a real Windows CPython (tests/windows_host).
#
#   bash ci/windows-host.sh           what .ci/run runs: the verbs, files, children, odd folders
#   bash ci/windows-host.sh fast      the fast suite by the Windows Python, file by file; with git
#                                     (below) the tests that need it run, too
#   bash ci/windows-host.sh small     the tests' small project, built from nothing, killed, resumed;
#                                     the first time zig builds its C runtime in Wine: up to an hour
#   bash ci/windows-host.sh git       what needs git: QBUILD_TEST_WINDOWS_GIT names the folder of a
#                                     git.exe, which tests/windows_host/git.sh builds
#   bash ci/windows-host.sh avx2      that recipe built whole there and compared with Linux's zip
#   bash ci/windows-host.sh objects   files of llama.cpp, compiled on both hosts and compared
#
# Words after these go to pytest: `bash ci/windows-host.sh fast -k test_sbom`.
#
# The machine lies in ~/.cache/qbuild-windows-host and is kept. It needs wine and mvn: without mvn
# nothing is run and that is said, unless QBUILD_REQUIRE_TOOLS is set: then it is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v mvn >/dev/null; then
  echo "NOT RUN: mvn, which brings a Windows CPython, is not installed (apt install maven)"
  [ -z "${QBUILD_REQUIRE_TOOLS:-}" ]
  exit
fi
case "${1:-quick}" in
  quick) chosen="windows_host and not fast and not small and not git and not avx2 and not objects" ;;
  fast | small | git | avx2 | objects) chosen="windows_host and $1" ;;
  *) echo "usage: bash ci/windows-host.sh [fast|small|git|avx2|objects]" >&2; exit 2 ;;
esac
exec python -m pytest -ra -m "$chosen" "${@:2}" tests/integration/test_windows_host*.py
