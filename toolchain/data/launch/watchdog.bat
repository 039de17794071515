@echo off
rem Keeps llama-server running: starts run-@NAME@.bat again whenever it ends by itself.
rem Made by qbuild from the recipe @RECIPE@. Put it beside run-@NAME@.bat. To start it with Windows,
rem without admin rights: press Win+R, enter shell:startup, and put a shortcut to it there.
rem An end by hand (Ctrl-C), a wrong setting or a missing file ends the watching, too. It waits five
rem seconds longer before each start, five minutes at most, and gives up after 100 (another number:
rem QBUILD_WATCH_MAX).
setlocal EnableExtensions DisableDelayedExpansion
set "QBUILD_NO_PAUSE=1"
set /a QB_STARTS=0
if not defined QBUILD_WATCH_MAX set "QBUILD_WATCH_MAX=100"
if not defined QBUILD_WATCH_WAIT set "QBUILD_WATCH_WAIT=5"
pushd "%~dp0"
if not exist "run-@NAME@.bat" goto no_script

:again
set /a QB_STARTS=QB_STARTS+1
rem The redirection stands in front: a number right before it would name a stream.
>>"watchdog-@NAME@.log" echo %DATE% %TIME% start %QB_STARTS%
cmd /c ".\run-@NAME@.bat" %*
set "QB_CODE=%ERRORLEVEL%"
>>"watchdog-@NAME@.log" echo %DATE% %TIME% ended with code %QB_CODE%
if "%QB_CODE%"=="0" goto done
if "%QB_CODE%"=="-1073741510" goto done
for %%c in (2 3 5 6) do if "%QB_CODE%"=="%%c" goto useless
if %QB_STARTS% GEQ %QBUILD_WATCH_MAX% goto useless
set /a QB_WAIT=QB_STARTS*QBUILD_WATCH_WAIT+1
if %QB_WAIT% GTR 301 set /a QB_WAIT=301
rem ping waits without a keyboard; `timeout` refuses to where there is none.
ping -n %QB_WAIT% 127.0.0.1 >nul
goto again

:no_script
echo run-@NAME@.bat is not in this folder: put this file beside it.
set "QB_CODE=3"
goto done

:useless
>>"watchdog-@NAME@.log" echo %DATE% %TIME% given up
echo Given up: starting again does not help. The messages above and watchdog-@NAME@.log say why.
:done
popd
exit /b %QB_CODE%
