#!/usr/bin/env bash
# A git for the Windows machine of Wine, from Debian's source and the pinned zig: no registry that
# we know of holds one. It is for tests: never shipped, never committed.
#
#   bash tests/windows_host/git.sh FOLDER     # minutes (twelve beside other builds); then
#   QBUILD_TEST_WINDOWS_GIT=FOLDER/git/bin bash ci/windows-host.sh git
#
# It needs a source entry (`deb-src`) of Debian 12 in a list of apt's: by default one is made of the
# machine's own. Left out: https, ssh, gettext, Perl, Tcl; a shell of one command stands in for MSYS2's.
set -euo pipefail
here="$(cd "$(dirname "$0")" && pwd)"
mkdir -p "${1:?a folder}"
cd "$1"
root=$PWD

# -- sources ------------------------------------------------------------------------------------
if ! [ -d git-src ]; then
  mkdir -p parts lists
  # Without the security suite: a mirror may list its sources and not have them.
  sed 's/^Types: deb$/Types: deb-src/' /etc/apt/sources.list.d/debian.sources |
    awk 'BEGIN { RS = ""; ORS = "\n\n" } !/security/' > parts/debian.sources
  apt=(-o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$root/parts"
       -o "Dir::State::lists=$root/lists" -o "APT::Sandbox::User=root")
  apt-get -q "${apt[@]}" update
  apt-get -q "${apt[@]}" source --download-only git zlib
  mkdir -p zlib-src
  tar xf zlib_*.orig.tar.* -C zlib-src --strip-components=1
  mkdir git-src.part
  tar xf git_*.orig.tar.* -C git-src.part --strip-components=1
  mv git-src.part git-src
fi

# -- tools --------------------------------------------------------------------------------------
zig=$(python -c '
from qbuild import host, resources
from qbuild.console import Plain
from qbuild.recipe.lock import load_lock
from qbuild.steps.pinned import fetch_wheel
from qbuild.store import Store
import platformdirs
wheel = load_lock(resources.lockfile()).wheel("ziglang", host.platform_key())
store = Store(platformdirs.user_cache_path("qbuild", appauthor=False))
print(fetch_wheel(wheel, store, Plain(), offline=False).path / "files/ziglang/zig")')
export ZIG_GLOBAL_CACHE_DIR=$root/zig ZIG_LOCAL_CACHE_DIR=$root/zig
mkdir -p bin include lib
# git.res (a version number for the file's properties) would need windres
cat > bin/cc <<END
#!/bin/bash
words=()
for word in "\$@"; do [ "\$word" = git.res ] || words+=("\$word"); done
exec "$zig" cc -target x86_64-windows-gnu "\${words[@]}"
END
printf '#!/bin/sh\nexec "%s" ar "$@"\n' "$zig" > bin/ar
printf '#!/bin/sh\ntouch git.res\n' > bin/rc
chmod +x bin/*
for name in NTSecAPI Psapi tlHelp32; do # as git spells them
  echo "#include <${name,,}.h>" > "include/$name.h"
done

# -- zlib, git ----------------------------------------------------------------------------------
(
  cd zlib-src
  for unit in adler32 crc32 deflate inffast inflate inftrees trees zutil compress uncompr; do
    "$root/bin/cc" -O2 -w -c "$unit.c" -o "$root/lib/$unit.o"
  done
  cp zlib.h zconf.h "$root/include"
)
"$zig" ar rcs lib/libz.a lib/*.o
make -C git-src -j"${JOBS:-1}" uname_S=MINGW uname_R=1.0 uname_M=x86_64 \
  CC="$root/bin/cc" AR="$root/bin/ar" RC="$root/bin/rc" \
  CFLAGS="-O1 -w -I$root/include" LDFLAGS="-L$root/lib" \
  NO_OPENSSL=1 NO_EXPAT=1 NO_GETTEXT=1 NO_TCLTK=1 NO_PERL=1 NO_PYTHON=1 NO_CURL=1 NO_ICONV=1 \
  NEEDS_LIBICONV= USE_NED_ALLOCATOR= USE_LIBPCRE= FSMONITOR_DAEMON_BACKEND= FSMONITOR_OS_SETTINGS= \
  RUNTIME_PREFIX=1 prefix=/mingw64 ETC_GITCONFIG=etc/gitconfig ETC_GITATTRIBUTES=etc/gitattributes \
  SHELL_PATH=/bin/sh git.exe git-daemon.exe

mkdir -p git/bin git/share/git-core/templates/info
touch git/share/git-core/templates/info/exclude
for name in git git-upload-pack git-receive-pack; do cp git-src/git.exe "git/bin/$name.exe"; done
cp git-src/git-daemon.exe git/bin
bin/cc -O1 -o git/bin/sh.exe "$here/sh.c"
rm -f git/bin/*.pdb
echo "git for the Windows machine: $root/git/bin"
