#!/usr/bin/env bash
# README's two commands on a machine that has nothing but Python, pip, git, sh and coreutils: in a
# new clone, with a PATH of those alone and an environment of HOME, PATH and what the package
# clients are told (mirrors, proxies, certificates). The store is the user's: what it holds is
# reused. Fails when a command fails; the tests that are skipped are named by pytest.
#
#   ci/bare.sh [FOLDER]      PYTHON=python3.13 ci/bare.sh
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-}
if [ -z "$folder" ]; then # a folder that was named is kept
  folder=$(mktemp -d)
  trap 'chmod -R u+rwX "$folder"; rm -rf "$folder"' EXIT
fi
python=$("${PYTHON:-python3}" -c 'import sys; print(sys.executable)') # not a version manager's script
here=$PWD
mkdir -p "$folder/bin"

link() { local found; found=$(command -v "$1") && ln -sf "$found" "$folder/bin/${2:-$1}"; }
link "$python" python3
link git
link sh
for name in '[' arch b2sum base32 base64 basename basenc cat chcon chgrp chmod chown chroot cksum \
    comm cp csplit cut date dd df dir dircolors dirname du echo env expand expr factor false fmt \
    fold groups head hostid id install join link ln logname ls md5sum mkdir mkfifo mknod mktemp mv \
    nice nl nohup nproc numfmt od paste pathchk pinky pr printenv printf ptx pwd readlink realpath \
    rm rmdir runcon seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort split \
    stat stdbuf stty sum sync tac tail tee test timeout touch tr true truncate tsort tty uname \
    unexpand uniq unlink users vdir wc who whoami yes; do
  [ -x "/usr/bin/$name" ] && ln -sf "/usr/bin/$name" "$folder/bin/$name"
done

settings=()
while IFS= read -r line; do settings+=("$line"); done < <(
  env | grep -E '^(PIP_|UV_|NPM_CONFIG_|npm_config_|[A-Za-z]*_(proxy|PROXY)=|SSL_CERT_|REQUESTS_CA_|CURL_CA_|NODE_EXTRA_CA_)' || true
)
bare() { env -i HOME="$HOME" PATH="$folder/bin" "${settings[@]}" "$@"; }

git clone -q "$here" "$folder/clone"
cd "$folder/clone"
# The commands are README's own: the lines of its first "sh" block that are no comments.
commands=$(sed -n '/^```sh$/,/^```$/p' README.md | sed '/^```/d;/^#/d;/^$/d' | head -n 2)
number=0
while IFS= read -r command; do
  number=$((number + 1))
  printf '\n-- README command %s: %s\n' "$number" "$command"
  SECONDS=0
  [ "$number" = 2 ] && command="$command -rs"
  bare sh -c "$command"
  printf -- '-- %s s\n' "$SECONDS"
done <<<"$commands"
[ "$number" = 2 ] || { echo "README holds $number commands, not two"; exit 1; }
