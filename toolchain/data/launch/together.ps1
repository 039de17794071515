# @SUMMARY@
# Made by qbuild from the recipe @RECIPE@. Starts each of these in a window of its own.
$ErrorActionPreference = 'Stop'
Set-Location -LiteralPath $PSScriptRoot
foreach ($name in '@STARTS@'.Split(' ')) {
    if (-not (Test-Path -LiteralPath "run-$name.bat")) {
        Write-Host "run-$name.bat is missing: unpack the whole zip."
        exit 3
    }
}
foreach ($name in '@STARTS@'.Split(' ')) {
    Start-Process -FilePath "$env:ComSpec" -ArgumentList '/c', "run-$name.bat"
}
