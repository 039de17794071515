
# What nvidia-smi says on standard output is no version when the driver does not answer.
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null \
    | grep -E '^[0-9]+\.[0-9]' | head -n 1)
if [ "$driver" ]; then
    oldest=$(printf '%s\n%s\n' "$driver" "@DRIVER@" | sort -t . -k 1,1n -k 2,2n -k 3,3n | head -n 1)
    [ "$oldest" = "@DRIVER@" ] || stop 6 \
        "The NVIDIA driver is too old: version $driver is installed, @DRIVER@ or newer is needed." \
        "Get a newer one from NVIDIA (or your distribution) and start again."
fi
