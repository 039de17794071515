@echo off
rem @SUMMARY@
rem Made by qbuild from the recipe @RECIPE@. Starts each of these in a window of its own.
setlocal EnableExtensions DisableDelayedExpansion
pushd "%~dp0"
set "QB_CODE=0"
for %%s in (@STARTS@) do if not exist "run-%%s.bat" set "QB_CODE=3"
if "%QB_CODE%"=="3" echo One of these is missing: unpack the whole zip.
if not "%QB_CODE%"=="0" goto end
for %%s in (@STARTS@) do start "%%s" cmd /c "run-%%s.bat"
:end
if not "%QB_CODE%"=="0" if not defined QBUILD_NO_PAUSE pause
popd
exit /b %QB_CODE%
