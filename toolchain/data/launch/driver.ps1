
if (Get-Command nvidia-smi -ErrorAction SilentlyContinue) {
    $driver = & nvidia-smi '--query-gpu=driver_version' '--format=csv,noheader' 2>$null | Where-Object { $_ -match '^\d+\.\d' } | Select-Object -First 1
    if ($driver -and [version]$driver.Trim() -lt [version]'@DRIVER@') {
        Stop-Start 6 "The NVIDIA driver is too old: version $driver is installed, @DRIVER@ or newer is needed.", 'Get a newer one from NVIDIA and start again.'
    }
}
