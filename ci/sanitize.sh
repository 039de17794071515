#!/usr/bin/env bash
# The tool-call parser under AddressSanitizer and UndefinedBehaviorSanitizer: its fuzz driver on mutations of
# every case. gcc, because zig links no sanitizer; the rest of llama.cpp comes from the finished bundle.
#
#   ci/sanitize.sh PATCHED_SOURCE UNPACKED_LINUX_BUNDLE [MUTATIONS]
set -euo pipefail
source=$1 bundle=$2 mutations=${3:-20000}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
g++ -O1 -g -std=c++17 -fsanitize=address,undefined -fno-sanitize-recover=all -DLLAMA_TOOL_CALL_BUILD \
  -I"$source/src" -I"$source/tests" -I"$source/common" -I"$source/include" -I"$source/ggml/include" \
  -I"$source/vendor" "$source/tests/fuzz-tool-call-parser.cpp" "$source/src/llama-tool-call.cpp" \
  "$source/src/llama-tool-call-json.cpp" -o "$out/fuzz" \
  "$bundle/libllama.so.0" "$bundle/libggml-base.so.0" "$bundle/libggml.so.0" \
  -Wl,-rpath,"$bundle" -Wl,--allow-shlib-undefined -lpthread -ldl
"$out/fuzz" "$source/tests/tool-call-cases.json" "$mutations"
