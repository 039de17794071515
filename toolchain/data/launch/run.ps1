# @SUMMARY@
# Made by qbuild from the recipe @RECIPE@. Settings are in @CONFIG@: change that
# file, not this one. A model named on the command line is used instead of the one named there;
# options behind it are passed on. Windows may refuse scripts: README.txt says what to do.
# No attributes on the parameters: then options for the program (--port 9) end up in $args.
param([switch]$QbuildFacts)
$ErrorActionPreference = 'Stop'
$tool = '@TOOL@.exe'
$config = '@CONFIG@'
$feature = @FEATURE@

function Get-Level {
    # Windows before 10 2004 (build 19041) does not know these questions and always says no.
    if ($feature -eq 0) { return 'yes' }
    try {
        $kernel = Add-Type -PassThru -Namespace Qbuild -Name Kernel -MemberDefinition `
            '[DllImport("kernel32.dll")] public static extern bool IsProcessorFeaturePresent(uint feature);'
        if ($kernel::IsProcessorFeaturePresent($feature)) { return 'yes' }
        if ([Environment]::OSVersion.Version.Build -ge 19041) { return 'no' }
    } catch { Write-Verbose "$_" }
    return 'unknown'
}

function Get-Cores {
    try {
        $sum = (Get-CimInstance -ClassName Win32_Processor | Measure-Object -Property NumberOfCores -Sum).Sum
        if ($sum -ge 1) { return [int]$sum }
    } catch { Write-Verbose "$_" }
    return $null
}

if ($QbuildFacts) {
    "level=$(Get-Level)"
    $cores = Get-Cores
    if ($cores) { "cores=$cores" }
    exit 0
}

function Stop-Start([int]$code, [string[]]$lines) {
    foreach ($line in $lines) { Write-Host $line }
    # Only a window that was opened for this script closes behind it.
    if (-not $env:QBUILD_NO_PAUSE -and [Environment]::CommandLine -match '-File|-Command') {
        try { Read-Host 'Press Enter to close this window' | Out-Null } catch { Write-Verbose "$_" }
    }
    exit $code
}

$given = $null
$more = @($args)
if ($more -and -not "$($more[0])".StartsWith('-')) {
    $given = [IO.Path]::GetFullPath([IO.Path]::Combine((Get-Location -PSProvider FileSystem).ProviderPath, $more[0]))
    $more = @($more | Select-Object -Skip 1)
}

Set-Location -LiteralPath $PSScriptRoot
$OutputEncoding = [Console]::OutputEncoding = New-Object System.Text.UTF8Encoding $false
if (-not (Test-Path -LiteralPath $tool)) {
    Stop-Start 3 "$tool is not in this folder:", "  $PSScriptRoot", 'Unpack the whole zip into a folder of its own and start from there.'
}
if (-not (Test-Path -LiteralPath $config)) {
    Stop-Start 3 "The file of settings is missing: $config", 'Take it from the zip again.'
}

# What the zip held and its programs need: manifest.json lists every library.
if (Test-Path -LiteralPath 'manifest.json') {
    try {
        $held = (Get-Content -LiteralPath 'manifest.json' -Raw -Encoding UTF8 | ConvertFrom-Json).files
        $gone = @($held | Where-Object { $_.role -eq 'library' -and -not (Test-Path -LiteralPath $_.path) } | ForEach-Object { $_.path })
    } catch { $gone = @() }
    if ($gone) {
        Stop-Start 3 "Missing in this folder, though the zip held it: $($gone -join ', ')", "  $PSScriptRoot", 'Unpack the whole zip again. If it goes missing again, a virus scanner took it: its quarantine', 'list says so, and can give it back.'
    }
}

$names = New-Object System.Collections.Generic.List[string]
$arguments = New-Object System.Collections.Generic.List[string]
$model = $given
$mmproj = $threads = $null
$port = 8080
foreach ($line in (Get-Content -LiteralPath $config -Encoding UTF8 | Select-Object -Skip 1)) {
    if ($line.StartsWith('#')) { continue }
    $name, $value = $line.Split([char[]]'=', 2)
    $name = $name.Trim()
    if (-not $name) { continue }
    $names.Add($name)
    if ($null -eq $value) { $arguments.Add("--$name"); continue }
    $value = $value.Trim()
    if ($value -match '^[\[{]') {
        # JSON keeps its quotes; PowerShell before 7.3 passes them on only behind a backslash.
        if ($PSVersionTable.PSVersion -lt [version]'7.3') { $value = $value.Replace('"', '\"') }
    } else {
        $value = $value.Replace('"', '').Trim().TrimEnd('\')
    }
    if (-not $value) { continue }
    switch ($name) {
        'model' { if (-not $model) { $model = $value } }
        'threads' { $threads = $value }
        'port' { $port = $value }
        'mmproj' { $mmproj = $value }
        'slot-save-path' { New-Item -ItemType Directory -Force -Path $value | Out-Null }
    }
    if ($name -notin 'model', 'threads') { $arguments.Add("--$name"); $arguments.Add($value) }
}
for ($i = 0; $i -lt $more.Count - 1; $i++) { if ($more[$i] -eq '--port') { $port = $more[$i + 1] } }

if (-not $model) {
    Stop-Start 2 "$config names no model.", 'Add a line like this one:  model = models/model.gguf'
}
if (-not (Test-Path -LiteralPath $model -PathType Leaf)) {
    $whole = [IO.Path]::GetFullPath([IO.Path]::Combine($PSScriptRoot, $model))
    $lines = 'The model is not there:', "  $model", 'that is:', "  $whole", "Put a .gguf file there, or write its name behind `"model =`" in $config,", "or name it:  .\@SCRIPT@.ps1 C:\path\to\model.gguf"
    $here = @(Get-ChildItem -Path 'models', '.' -Filter '*.gguf' -ErrorAction SilentlyContinue)
    if ($here) { $lines += 'Models that are here:'; $lines += @($here | ForEach-Object { "  $($_.FullName)" }) }
    Stop-Start 3 $lines
}
if ($mmproj -and -not (Test-Path -LiteralPath $mmproj -PathType Leaf)) {
    Stop-Start 3 'The projector of the model (mmproj) is not there:', "  $mmproj", "Put it there, or remove the line `"mmproj`" from $config to go without pictures and sound."
}
if ((Get-Level) -eq 'no') {
    Stop-Start 5 'This processor is too old for this bundle: it needs the level @CPU@.', '@OTHER_RECIPE@'
}
@DRIVER_CHECK@
if ($threads -eq 'physical') { $threads = Get-Cores }
if ($threads) { $arguments.Add('--threads'); $arguments.Add("$threads") }
$arguments.Add('--model')
$arguments.Add($model)

if (@SERVER@) {
    $listeners = [Net.NetworkInformation.IPGlobalProperties]::GetIPGlobalProperties().GetActiveTcpListeners()
    if ($listeners | Where-Object { $_.Port -eq [int]$port }) {
        $who = 'another program, maybe another start of this one,'
        try {
            $owner = (Get-NetTCPConnection -State Listen -LocalPort ([int]$port) -ErrorAction Stop | Select-Object -First 1).OwningProcess
            $who = "$((Get-Process -Id $owner -ErrorAction Stop).ProcessName) (process $owner)"
        } catch { Write-Verbose "$_" }
        Stop-Start 4 "Port $port is taken: $who listens on it.", "End it, or write another number behind `"port =`" in $config."
    }
    if ('@WEB_UI@' -eq '1') { Write-Host "Once it says `"listening`", chat in a browser: http://127.0.0.1:$port" }
}

# Options that this bundle's own settings do not have: does the program know them?
$renamed = @{
@RENAMED@
}
$help = $null
foreach ($name in $names) {
    if ($name -in '@CHECKED@'.Split(' ')) { continue }
    if ($null -eq $help) { $help = & ".\$tool" --help 2>$null | Out-String }
    if (-not $help) { break }
    $said = [regex]::Match($help, "(?m)(^|[ ,])--$([regex]::Escape($name))([ ,]|`$)[\s\S]{0,300}").Value -replace '\s+', ' '
    if ($said -match 'has been removed\. ?(.{0,120})') {
        Stop-Start 2 "$config names the option `"$name`", which $tool no longer has.", "It says: $($Matches[1])"
    }
    if ($said) { continue }
    $use = if ($renamed[$name]) { "There is $($renamed[$name]). " } else { '' }
    Stop-Start 2 "$config names the option `"$name`", which $tool does not have.", "${use}All options: .\$tool --help"
}

& ".\$tool" @arguments @more
$code = $LASTEXITCODE
if ($code -eq 0 -or $code -eq -1073741510) { exit $code }
if ($code -eq -1073741795) {
    Stop-Start $code 'This processor is too old for this bundle: it needs the level @CPU@.', '@OTHER_RECIPE@'
}
if ($code -eq -1073741515) {
    Stop-Start $code "$tool misses a library (DLL).", 'Unpack the whole zip into a folder of its own and start from there.'
}
Stop-Start $code '', "$tool ended with code $code; the lines above say why. Its settings are in $config."
