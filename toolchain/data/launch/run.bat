@echo off
rem @SUMMARY@
rem Made by qbuild from the recipe @RECIPE@. Settings are in @CONFIG@: change that
rem file, not this one. A model dropped on this file is used instead of the one named there;
rem options behind it are passed on. QBUILD_NO_PAUSE=1 keeps the window from waiting on an error.
setlocal EnableExtensions DisableDelayedExpansion
set "QB_CODE=0"
set "QB_EXE=@TOOL@.exe"
set "QB_CONFIG=@CONFIG@"
set "QB_MODEL="
set "QB_MORE="
set "QB_PORT="
set "QB_LOG="
set "QB_MMPROJ="
set "QB_THREADS="
set "QB_SET_MODEL="
set "QB_SET_PORT="
set "QB_SERVER=@SERVER@"
set /a QB_N=0

rem Whole path of a given model, before the folder changes.
if "%~1"=="" goto begin
set "QB_FIRST=%~1"
if "%QB_FIRST:~0,1%"=="-" goto more
set "QB_MODEL=%~f1"
shift /1
:more
if "%~1"=="" goto begin
if /i "%~1"=="--port" set "QB_PORT=%~2"
set "QB_MORE=%QB_MORE% %1"
shift /1
goto more

:begin
pushd "%~dp0"
for /f "tokens=2 delims=:." %%c in ('chcp') do set "QB_CODEPAGE=%%c"
chcp 65001 >nul

if not exist "%QB_EXE%" goto no_exe
if not exist "%QB_CONFIG%" goto no_config
rem What the zip held and its programs need: manifest.json lists every library.
set "QB_GONE="
set "QB_PATH="
rem No `call` for each line: it has a thousand, and each call looks for its label in this file.
if exist manifest.json for /f "usebackq tokens=1,2 delims=:, " %%a in ("manifest.json") do (
  if %%a=="path" set QB_PATH=%%b
  if %%a=="role" if %%b=="library" call :held
)
if defined QB_GONE goto gone
for /f "usebackq skip=1 eol=# tokens=1* delims==" %%a in ("%QB_CONFIG%") do (
  set "QB_NAME=%%a"
  set "QB_VALUE=%%b"
  call :setting
)
if not defined QB_MODEL set "QB_MODEL=%QB_SET_MODEL%"
if not defined QB_MODEL goto no_model_set
call :keep model
if not exist "%QB_MODEL%" goto no_model
if not defined QB_MMPROJ goto checked_mmproj
if not exist "%QB_MMPROJ%" goto no_mmproj
:checked_mmproj

rem What the machine is: PowerShell tells, where there is one; unknown stops nothing.
for /f "usebackq tokens=1,2 delims==" %%a in (`powershell.exe -NoProfile -NonInteractive -ExecutionPolicy Bypass -File "%~dp0@SCRIPT@.ps1" -QbuildFacts 2^>nul`) do set "QB_FACT_%%a=%%b"
if "%QB_FACT_level%"=="no" goto old_cpu
if "%QB_THREADS%"=="physical" set "QB_THREADS=%QB_FACT_cores%"
if defined QB_THREADS call :keep threads %QB_THREADS%
@DRIVER_CHECK@
set "QB_BAD="
set "QB_HELP="
for /l %%i in (1,1,%QB_N%) do call :known %%i
if defined QB_HELP del "%QB_HELP%" >nul 2>&1
if defined QB_BAD goto bad_option
if not "%QB_SERVER%"=="1" goto run
if not defined QB_PORT set "QB_PORT=%QB_SET_PORT%"
if not defined QB_PORT set "QB_PORT=8080"
set "QB_TAKEN="
for /f "tokens=2,3" %%a in ('netstat -an 2^>nul ^| findstr /i /c:"tcp"') do (
  set "QB_LOCAL=%%a"
  set "QB_PEER=%%b"
  call :taken
)
if defined QB_TAKEN goto port_taken
if "@WEB_UI@"=="1" echo Once it says "listening", chat in a browser: http://127.0.0.1:%QB_PORT%
rem What netstat does not show, the server itself finds out: then its log says so.
set "QB_LOG=%TEMP%\qbuild-%RANDOM%-%RANDOM%.log"

:run
setlocal EnableDelayedExpansion
set "QB_ARGS="
for /l %%i in (1,1,%QB_N%) do call :argument %%i
if defined QB_LOG set "QB_ARGS=!QB_ARGS! --log-file "!QB_LOG!""
"!QB_EXE!" !QB_ARGS!!QB_MORE!
endlocal & set "QB_CODE=%ERRORLEVEL%"
if "%QB_CODE%"=="0" goto end
if "%QB_CODE%"=="-1073741510" goto end
if "%QB_CODE%"=="-1073741795" goto old_cpu
if "%QB_CODE%"=="-1073741515" goto no_dll
if not defined QB_LOG goto unknown
if not exist "%QB_LOG%" goto unknown
findstr /c:"couldn't bind" "%QB_LOG%" >nul 2>&1
if not errorlevel 1 goto port_taken
:unknown
echo.
echo %QB_EXE% ended with code %QB_CODE%; the lines above say why. Its settings are in %QB_CONFIG%.
goto pause

rem -- subroutines ---------------------------------------------------------------------------

:setting
rem One line of the file of settings: QB_NAME and QB_VALUE.
if not defined QB_NAME exit /b 0
set "QB_NAME=%QB_NAME: =%"
if not defined QB_NAME exit /b 0
set "QB_NAME=%QB_NAME:	=%"
if not defined QB_NAME exit /b 0
if not defined QB_VALUE goto store
rem JSON keeps its quotes; it begins with a brace, maybe behind blanks.
set "QB_BARE=%QB_VALUE:"=%"
set "QB_HEAD="
for /f "tokens=*" %%v in ("%QB_BARE%") do set "QB_HEAD=%%v"
if not defined QB_HEAD exit /b 0
if "%QB_HEAD:~0,1%"=="{" goto trim_front
if "%QB_HEAD:~0,1%"=="[" goto trim_front
set "QB_VALUE=%QB_BARE%"
:trim_front
if not defined QB_VALUE exit /b 0
if "%QB_VALUE:~0,1%"==" " (
  set "QB_VALUE=%QB_VALUE:~1%"
  goto trim_front
)
if "%QB_VALUE:~0,1%"=="	" (
  set "QB_VALUE=%QB_VALUE:~1%"
  goto trim_front
)
:trim_end
if "%QB_VALUE:~-1%"==" " (
  set "QB_VALUE=%QB_VALUE:~0,-1%"
  goto trim_end
)
if "%QB_VALUE:~-1%"=="	" (
  set "QB_VALUE=%QB_VALUE:~0,-1%"
  goto trim_end
)
if "%QB_VALUE:~-1%"=="\" set "QB_VALUE=%QB_VALUE:~0,-1%"
rem A program's own quotes go behind a backslash.
if "%QB_HEAD:~0,1%"=="{" set "QB_VALUE=%QB_VALUE:"=\"%"
if "%QB_HEAD:~0,1%"=="[" set "QB_VALUE=%QB_VALUE:"=\"%"
:store
if /i "%QB_NAME%"=="model" set "QB_SET_MODEL=%QB_VALUE%"
if /i "%QB_NAME%"=="model" exit /b 0
if /i "%QB_NAME%"=="threads" set "QB_THREADS=%QB_VALUE%"
if /i "%QB_NAME%"=="threads" exit /b 0
if /i "%QB_NAME%"=="port" set "QB_SET_PORT=%QB_VALUE%"
if /i "%QB_NAME%"=="mmproj" set "QB_MMPROJ=%QB_VALUE%"
if /i "%QB_NAME%"=="slot-save-path" call :folder
set /a QB_N=QB_N+1
set "QB_K%QB_N%=%QB_NAME%"
set "QB_V%QB_N%=%QB_VALUE%"
exit /b 0

:keep
rem Add the setting %1; paths may hold what `call` would change, so the model's is not passed.
set /a QB_N=QB_N+1
set "QB_K%QB_N%=%1"
if "%1"=="model" set "QB_V%QB_N%=%QB_MODEL%"
if not "%1"=="model" set "QB_V%QB_N%=%2"
exit /b 0

:folder
set "QB_FOLDER=%QB_VALUE:/=\%"
if not exist "%QB_FOLDER%" mkdir "%QB_FOLDER%"
exit /b 0

:argument
set "QB_ARGS=!QB_ARGS! --!QB_K%1!"
if defined QB_V%1 set "QB_ARGS=!QB_ARGS! "!QB_V%1!""
exit /b 0

:held
rem A library of manifest.json, whose path comes before its role: QB_PATH, with its quotes.
if not exist %QB_PATH% set "QB_GONE=%QB_GONE% %QB_PATH:"=%"
exit /b 0

:known
rem Options that this bundle's own settings do not have: does the program know them?
if defined QB_BAD exit /b 0
call set "QB_NAME=%%QB_K%1%%"
for %%n in (@CHECKED@) do if /i "%%n"=="%QB_NAME%" exit /b 0
if defined QB_HELP goto have_help
set "QB_HELP=%TEMP%\qbuild-help-%RANDOM%-%RANDOM%.txt"
"%QB_EXE%" --help >"%QB_HELP%" 2>nul
:have_help
set "QB_SIZE=0"
for %%h in ("%QB_HELP%") do set "QB_SIZE=%%~zh"
if "%QB_SIZE%"=="0" exit /b 0
rem An option's names stand first in its line, with commas between.
set "QB_FOUND="
for /f "usebackq tokens=1-4 delims=, " %%a in ("%QB_HELP%") do (
  if "%%a"=="--%QB_NAME%" set "QB_FOUND=1"
  if "%%b"=="--%QB_NAME%" set "QB_FOUND=1"
  if "%%c"=="--%QB_NAME%" set "QB_FOUND=1"
  if "%%d"=="--%QB_NAME%" set "QB_FOUND=1"
)
if not defined QB_FOUND set "QB_BAD=%QB_NAME%"
rem These are only there to say that they were removed.
for %%n in (@REMOVED@) do if /i "%%n"=="%QB_NAME%" set "QB_BAD=%QB_NAME%"
exit /b 0

:taken
rem A listening port has no peer, whatever the language of this Windows calls its state.
if not "%QB_PEER:~-2%"==":0" if not "%QB_PEER:~-2%"==":*" exit /b 0
if "%QB_LOCAL%"=="0.0.0.0:%QB_PORT%" set "QB_TAKEN=1"
if "%QB_LOCAL%"=="127.0.0.1:%QB_PORT%" set "QB_TAKEN=1"
if "%QB_LOCAL%"=="[::]:%QB_PORT%" set "QB_TAKEN=1"
if "%QB_LOCAL%"=="[::1]:%QB_PORT%" set "QB_TAKEN=1"
exit /b 0

rem -- what can be wrong, and what helps -----------------------------------------------------

:no_exe
set "QB_CODE=3"
echo %QB_EXE% is not in this folder:
echo   "%CD%"
echo Unpack the whole zip into a folder of its own and start from there.
goto pause

:gone
set "QB_CODE=3"
echo Missing in this folder, though the zip held it:%QB_GONE%
echo   "%CD%"
echo Unpack the whole zip again. If it goes missing again, a virus scanner took it: its quarantine
echo list says so, and can give it back.
goto pause

:bad_option
set "QB_CODE=2"
set "QB_USE="
set "QB_NAME=%QB_BAD%"
@RENAMED@
echo %QB_CONFIG% names the option "%QB_BAD%", which %QB_EXE% does not have, or no longer has.
if defined QB_USE echo There is %QB_USE%.
echo All options: %QB_EXE% --help
goto pause

:no_config
set "QB_CODE=3"
echo The file of settings is missing: %QB_CONFIG%
echo Take it from the zip again.
goto pause

:no_model_set
set "QB_CODE=2"
echo %QB_CONFIG% names no model.
echo Add a line like this one:  model = models/model.gguf
goto pause

:no_model
set "QB_CODE=3"
echo The model is not there:
echo   "%QB_MODEL%"
for %%m in ("%QB_MODEL%") do echo that is:
for %%m in ("%QB_MODEL%") do echo   "%%~fm"
echo Put a .gguf file there, or write its name behind "model =" in %QB_CONFIG%,
echo or drop the .gguf file on this script.
set "QB_SHOWN="
for %%m in (models\*.gguf *.gguf) do set "QB_SHOWN=1"
if defined QB_SHOWN echo Models that are here:
for %%m in (models\*.gguf *.gguf) do echo   "%%m"
goto pause

:no_mmproj
set "QB_CODE=3"
echo The projector of the model (mmproj) is not there:
echo   "%QB_MMPROJ%"
echo Put it there, or remove the line "mmproj" from %QB_CONFIG% to go without pictures and sound.
goto pause

:port_taken
set "QB_CODE=4"
set "QB_WHO=another program, maybe another start of this one,"
set "QB_PID="
for /f "tokens=2,5" %%a in ('netstat -ano 2^>nul ^| findstr /i /c:"tcp" ^| findstr /c:":%QB_PORT% "') do if not defined QB_PID set "QB_PID=%%b"
if not defined QB_PID goto say_taken
for /f "tokens=1 delims=," %%p in ('tasklist /fi "PID eq %QB_PID%" /fo csv /nh 2^>nul ^| findstr /c:"%QB_PID%"') do set "QB_WHO=%%~p (process %QB_PID%)"
:say_taken
echo Port %QB_PORT% is taken: %QB_WHO% listens on it.
echo End it, or write another number behind "port =" in %QB_CONFIG%.
goto pause

:old_cpu
set "QB_CODE=5"
echo This processor is too old for this bundle: it needs the level @CPU@.
echo @OTHER_RECIPE@
goto pause

:no_dll
echo %QB_EXE% misses a library (DLL).
echo Unpack the whole zip into a folder of its own and start from there.
goto pause

:pause
echo.
if not defined QBUILD_NO_PAUSE pause
:end
if defined QB_LOG del "%QB_LOG%" >nul 2>&1
if defined QB_CODEPAGE chcp %QB_CODEPAGE% >nul 2>&1
popd
exit /b %QB_CODE%
