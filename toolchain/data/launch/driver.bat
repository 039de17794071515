
set "QB_DRIVER="
for /f "usebackq delims=" %%d in (`nvidia-smi --query-gpu^=driver_version --format^=csv^,noheader 2^>nul ^| findstr /r "^[0-9][0-9]*\.[0-9]"`) do set "QB_DRIVER=%%d"
if not defined QB_DRIVER goto driver_checked
for /f "tokens=1,2 delims=." %%a in ("%QB_DRIVER%") do (
  set "QB_MAJOR=%%a"
  set "QB_MINOR=%%b"
)
if %QB_MAJOR% LSS @MAJOR@ goto old_driver
rem A 1 in front: numbers that start with 0 would be octal.
if %QB_MAJOR% EQU @MAJOR@ if 1%QB_MINOR% LSS 1@MINOR@ goto old_driver
goto driver_checked
:old_driver
set "QB_CODE=6"
echo The NVIDIA driver is too old: version %QB_DRIVER% is installed, @DRIVER@ or newer is needed.
echo Get a newer one from NVIDIA and start again.
goto pause
:driver_checked
