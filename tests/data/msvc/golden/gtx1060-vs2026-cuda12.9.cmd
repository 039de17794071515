qbuild: nvcc of CUDA 12.9 does not accept MSVC 19.50 (_MSC_VER 1950): it takes 1910 to 1949
  where: recipe gtx1060: toolchain: Visual Studio 2026 Community, toolset 14.50.35717
  to do: install the v143 tools of Visual Studio 2022 (Visual Studio Installer, Individual components)
