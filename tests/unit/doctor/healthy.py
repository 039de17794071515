"""Machines and logs in which the doctor must find nothing, and noise to hide things in."""

from __future__ import annotations

from typing import Any

V3 = "abm avx avx2 bmi1 bmi2 cx16 f16c fma lahf_lm movbe pni popcnt sse4_1 sse4_2 ssse3 xsave"

FACTS: dict[str, dict[str, Any]] = {
    "plain windows": {
        "os": "windows",
        "msvc": "19.39",
        "cuda": "12.4",
        "build_root": "C:\\qb",
        "ram_gb": 32,
        "jobs": 8,
    },
    "windows, vs 2022, cuda in its default folder": {
        "os": "windows",
        "visual_studio": ["17.14.36109.1"],
        "toolset": "14.44",
        "other_toolsets": ["14.29"],
        "windows_sdks": ["10.0.22621.0"],
        "vs_buildcustomizations": ["CUDA 12.9.props", "CUDA 12.9.targets", "CUDA 12.9.xml"],
        "generator": "Visual Studio 17 2022",
        "cuda": "12.9",
        "nvcc": "12.9.86",
        "cuda_path": "C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA\\v12.9",
        "cuda_path_version": "12.9.1",
        "build_root": "D:\\qb",
        "long_paths_enabled": False,
        "code_page": 936,
        "toolchain": "nvcc",
        "architectures": ["61-real", "86-real"],
    },
    "several toolkits that agree": {
        "os": "windows",
        "nvcc": "12.4.131",
        "cuda_path": "C:\\Program Files\\NVIDIA GPU Computing Toolkit\\CUDA\\v12.4",
        "cuda_path_version": "12.4.1",
        "cuda_toolkits": ["11.8", "12.4", "13.0"],
        "toolset": "14.43",
    },
    "strawberry perl and git, but zig compiles": {
        "os": "windows",
        "path": ["C:\\Strawberry\\c\\bin", "C:\\Program Files\\Git\\usr\\bin"],
        "toolchain": "zig",
        "visual_studio": [],
        "windows_sdks": [],
        "build_root": "C:\\Users\\xxxx xxx\\AppData\\Local\\qbuild\\Cache",
        "cuda": "12.4",
        "long_paths_enabled": True,
        "code_page": 1252,
    },
    "strawberry perl first, but visual studio picks the compiler": {
        "os": "windows",
        "cuda": "12.4",
        "path": ["C:\\Strawberry\\c\\bin", "C:\\VS\\bin"],
        "generator": "Visual Studio 17 2022",
    },
    "utf-8 windows with a chinese user": {
        "os": "windows",
        "build_root": "C:\\Users\\éé\\AppData\\Local\\qbuild",
        "code_page": 65001,
        "toolchain": "zig",
        "long_paths_enabled": True,
    },
    "defender on, exclusions unreadable": {"os": "windows", "defender_realtime": True},
    "linux server with three a100": {
        "os": "linux",
        "gcc": "13.3.0",
        "clang": "19.1.0",
        "cuda": "12.9",
        "nvcc": "12.9.86",
        "architectures": ["80-real"],
        "ram_gb": 512,
        "jobs": 64,
        "gpus": [
            {"name": "NVIDIA A100-SXM4-80GB", "vendor": "nvidia", "driver": "550.54.14"},
        ]
        * 3,
        "bundle_cubins": ["80"],
    },
    "wsl with its store in linux": {
        "os": "linux",
        "kernel": "6.6.87.2-microsoft-standard-WSL2",
        "store": "/home/xxxx/.cache/qbuild",
        "build_root": "/home/xxxx/.cache/qbuild",
        "cwd": "/mnt/c/xxx",
        "recipe_os": "windows",
        "driver": "560.94",
        "gpu": "GTX 1060",
        "cuda": "12.4",
    },
    "small laptop, zig": {
        "os": "linux",
        "ram_gb": 7.6,
        "jobs": 4,
        "free_disk_gb": 11.0,
        "toolchain": "zig",
        "cpu": {"flags": V3.split()},
        "recipe_cpu": "x86-64-v3",
        "tools": {"git": "2.39.5", "ninja": None, "cmake": None},
    },
    "behind a proxy": {
        "os": "linux",
        "proxy": ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"],
        "tools": {"git": "2.45.0"},
    },
    "cuda 13 for new cards": {
        "os": "linux",
        "gcc": "15.1.0",
        "cuda": "13.0.88",
        "architectures": ["75-real", "80-virtual", "120a-real"],
    },
    "a toolkit newer than the table": {"os": "linux", "cuda": "14.1", "gcc": "17.0"},
    "gcc 14 beside cuda 12.4, but clang-cuda compiles": {
        "os": "linux",
        "gcc": "14.2.0",
        "cuda": "12.4",
        "toolchain": "clang-cuda",
        "architectures": ["61-real"],
        "free_disk_gb": 80,
    },
    "nothing known": {},
}

LOGS: dict[str, str] = {
    "configure": """\
-- The C compiler identification is GNU 12.2.0
-- The CXX compiler identification is GNU 12.2.0
-- Detecting C compiler ABI info - done
-- Check for working C compiler: /usr/bin/cc - skipped
-- Performing Test CMAKE_HAVE_LIBC_PTHREAD - Failed
-- Looking for pthread_create in pthreads - not found
-- Could NOT find OpenSSL, try to set the path to OpenSSL root folder
-- Warning: ccache not found - consider installing it for faster compilation
-- Found Git: /usr/bin/git (found version "2.39.5")
-- Could NOT find NCCL (missing: NCCL_LIBRARY NCCL_INCLUDE_DIR)
-- Performing Test GGML_MACHINE_SUPPORTS_nodotprod - Failed
-- CMAKE_SYSTEM_PROCESSOR: x86_64
-- Build files have been written to: /ci/build
""",
    "ninja": """\
[1/222] Building C object examples/gguf-hash/CMakeFiles/sha1.dir/deps/sha1/sha1.c.o
[2/222] Building C object examples/gguf-hash/CMakeFiles/sha256.dir/deps/sha256/sha256.c.o
[3/222] Building CXX object common/CMakeFiles/llama-common.dir/chat.cpp.o
[4/222] Building CXX object tests/CMakeFiles/test-backend-ops.dir/test-backend-ops.cpp.o
/src/ggml/src/ggml.c:1137:13: warning: unused variable 'killed' [-Wunused-variable]
[222/222] Linking CXX executable bin/llama-server
""",
    "msbuild, chinese": """\
MSBuild 版本 17.14.23+b0019275e (.NET Framework)
  1>Checking Build System
  ggml-cuda.vcxproj -> D:\\project\\build\\bin\\Release\\ggml-cuda.dll
C:/Program Files/NVIDIA GPU Computing Toolkit/CUDA/v12.6/include\\cuda.h(22958): warning C4819: \
该文件包含不能在当前代码页(936)中表示的字符
。请将该文件保存为 Unicode 格式以防止数据丢失 [D:\\project\\ggml-cuda.vcxproj]
D:\\project\\gguf.cpp(68,31): warning C4244: “=”: 从“int”转换到“float”，可能丢失数据
已成功生成。
    3 个警告
    0 个错误
""",
    "msbuild, german": """\
Der Buildvorgang wurde am 29.11.2026 17:01:33 gestartet.
  Building Custom Rule D:/src/CMakeLists.txt
  chat.cpp
D:\\src\\common\\chat.cpp(88,17): warning C4267: "=": Konvertierung von "size_t" nach "int", \
Datenverlust möglich
Der Buildvorgang wurde erfolgreich ausgeführt.
""",
    "tests pass": """\
 1/44 Test  #1: test-tokenizer-0-bert-bge ........   Passed    0.12 sec
 2/44 Test  #2: test-sampling ....................   Passed    1.02 sec
 3/44 Test  #3: test-quantize-fns ................***Skipped
100% tests passed, 0 tests failed out of 44
""",
    "server": """\
build: 0 (0c1e570) with Clang 22.1.8
system info: n_threads = 4, total_threads = 8
ggml_cuda_init: found 1 CUDA devices:
  Device 0: NVIDIA GeForce GTX 1060 6GB, compute capability 6.1, VMM: yes
load_backend: loaded CUDA backend from ggml-cuda.dll
main: server is listening on http://127.0.0.1:8080 - starting the main loop
slot release: id 0 | task 1073741515 | stop processing: n_tokens = 137
""",
    "fetch": """\
Cloning into bare repository 'llama.cpp'...
remote: Enumerating objects: 2811, done.
Receiving objects: 100% (2811/2811), 31.46 MiB | 8.2 MiB/s, done.
Looking in indexes: https://index.invalid/simple
Collecting ziglang==0.17.1
  Downloading ziglang-0.17.1-py3-none-win_amd64.whl (91.2 MB)
     91.2/91.2 MB 12.0 MB/s eta 0:00:00
""",
    "git am": """\
Applying: ggml: export only the API
Applying: cmake: name the DLLs
Auto-merging common/CMakeLists.txt
Using index info to reconstruct a base tree...
Falling back to patching base and 3-way merge...
""",
    "docker build": """\
#8 0.312 Get:1 http://mirror.invalid/debian bookworm InRelease [151 kB]
#8 4.201 Setting up git (1:2.39.5-0+deb12u2) ...
#9 12.11 ptxas info    : 77696 bytes gmem
#9 12.13 ptxas info    : Used 255 registers, 432 bytes cumulative stack size
#9 DONE 137.4s
exit code: 0
""",
    "hashes": """\
a3c1060b7b1bd0d0c1002c3859fe3c000013555c2001aa  llama-server.exe
sha256:c1060c1002c1076c3859lnk110200ab  image
commit 0c1e57098bba43ac29e6e3b677cdceebdd22334f (tag: b9999)
    sha1: use the hardware instructions (Intel SHA extensions)
""",
    "verify": """\
accepted llama-g0c1e57098-avx2-windows-x86_64.zip
  structure   ok    11 files, no name twice
  imports     ok    every DLL is in the zip or part of Windows
  cpu         ok    no instruction above x86-64-v3
""",
    "empty": "",
}

NOISE = ("configure", "ninja", "msbuild, chinese", "docker build", "server")
"""Logs that other logs are put in the middle of."""
