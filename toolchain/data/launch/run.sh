#!/bin/sh
# @SUMMARY@
# Made by qbuild from the recipe @RECIPE@. Settings are in @CONFIG@: change that
# file, not this one. A model named on the command line is used instead of the one named there;
# options behind it are passed on.
set -u
tool=@TOOL@
config=@CONFIG@

stop() { # code, then lines for the person in front of the screen
    code=$1
    shift
    printf '%s\n' "$@" >&2
    stay "$code"
}

stay() { # keep a window open that was opened for this script alone
    if [ -t 0 ] && [ -t 2 ] && [ -z "${QBUILD_NO_PAUSE:-}" ] \
        && [ "$(ps -o sid= -p $$ 2>/dev/null | tr -d ' ')" = "$$" ]; then
        printf 'Press Enter to close this window. ' >&2
        read -r _
    fi
    exit "$1"
}

trim() { # text without blanks (and the CR of a Windows editor) around it, in $trimmed
    trimmed=${1#"${1%%[![:space:]]*}"}
    trimmed=${trimmed%"${trimmed##*[![:space:]]}"}
}

# A given model, by its whole path: the folder changes below.
model=
port=
case ${1:-} in
    '' | -*) ;;
    /*) model=$1 && shift ;;
    *) model=$PWD/$1 && shift ;;
esac
previous=
for word in "$@"; do
    [ "$previous" = --port ] && port=$word
    previous=$word
done
more=$#

folder=$(dirname -- "$(readlink -f -- "$0")")
cd -- "$folder" || exit 3
[ -f "$tool" ] || stop 3 "$tool is not in this folder:" "  $folder" \
    "Unpack the whole zip into a folder of its own and start from there."
[ -x "$tool" ] || stop 3 "$tool may not be run; your unpacker dropped its permission." \
    "Once, in this folder:  chmod +x llama-* *.sh"
[ -f "$config" ] || stop 3 "The file of settings is missing: $config" "Take it from the zip again."

# What the zip held and its programs need: manifest.json lists every library.
gone=
if [ -f manifest.json ]; then
    for file in $(tr -d '\n' <manifest.json | sed 's/"path"/\n"path"/g' \
        | sed -n 's/^"path": *"\([^" ]*\)", *"role": *"library".*/\1/p'); do
        [ -e "$file" ] || gone="$gone $file"
    done
fi
[ -z "$gone" ] || stop 3 "Missing in this folder, though the zip held it:$gone" "  $folder" \
    "Unpack the whole zip again. If it goes missing again, a virus scanner took it: its quarantine" \
    "list says so, and can give it back."

threads=
mmproj=
configured_port=
names=
first=yes
while IFS= read -r line || [ -n "$line" ]; do
    if [ "$first" ]; then # it is a comment, and may carry a byte order mark
        first=
        continue
    fi
    case $line in \#*) continue ;; esac
    trim "${line%%=*}"
    name=$trimmed
    [ "$name" ] || continue
    names="$names $name"
    case $line in
        *=*) trim "${line#*=}" && value=$trimmed ;;
        *) set -- "$@" "--$name" && continue ;;
    esac
    case $value in
        '{'* | '['*) ;; # JSON keeps its quotes
        *) value=$(printf %s "$value" | tr -d '"') ;;
    esac
    [ "$value" ] || continue
    case $name in
        model) model=${model:-$value} && continue ;;
        threads) threads=$value && continue ;;
        port) configured_port=$value ;;
        mmproj) mmproj=$value ;;
        slot-save-path) mkdir -p -- "$value" || exit 3 ;;
    esac
    set -- "$@" "--$name" "$value"
done <"$config"

[ "$model" ] || stop 2 "$config names no model." "Add a line like this one:  model = models/model.gguf"
if [ ! -f "$model" ]; then
    here=$(ls -- models/*.gguf ./*.gguf 2>/dev/null | sed 's/^/  /')
    case $model in
        /*) whole=$model ;;
        *) whole=$folder/$model ;;
    esac
    stop 3 "The model is not there:" "  $model" "that is:" "  $whole" \
        "Put a .gguf file there, or write its name behind \"model =\" in $config," \
        "or name it:  $0 /path/to/model.gguf" ${here:+"Models that are here:" "$here"}
fi
[ -z "$mmproj" ] || [ -f "$mmproj" ] || stop 3 \
    "The projector of the model (mmproj) is not there:" "  $mmproj" \
    "Put it there, or remove the line \"mmproj\" from $config to go without pictures and sound."

# The processor: Linux lists what may be used, not what the silicon has.
cpuinfo=${QBUILD_CPUINFO:-/proc/cpuinfo}
have=$(sed -n 's/^flags[[:space:]]*: //p' "$cpuinfo" 2>/dev/null | head -n 1)
lacking=
if [ "$have" ]; then
    for flag in @CPU_FLAGS@; do
        case " $have " in *" $flag "*) ;; *) lacking="$lacking $flag" ;; esac
    done
fi
[ -z "$lacking" ] || stop 5 \
    "This processor is too old for this bundle: it needs the level @CPU@ and lacks:$lacking" \
    "@OTHER_RECIPE@"
@DRIVER_CHECK@
if [ "$threads" = physical ]; then
    threads=$(cat /sys/devices/system/cpu/cpu[0-9]*/topology/thread_siblings_list 2>/dev/null \
        | sort -u | wc -l)
    usable=$(nproc 2>/dev/null || echo "$threads")
    [ "$threads" -le "$usable" ] || threads=$usable # a container may have fewer
    [ "$threads" -ge 1 ] || threads=
fi
[ -z "$threads" ] || set -- "$@" --threads "$threads"
set -- "$@" --model "$model"

# The command line's own options come last, so that they win.
while [ "$more" -gt 0 ]; do
    word=$1
    shift
    set -- "$@" "$word"
    more=$((more - 1))
done

server=@SERVER@
if [ "$server" = 1 ]; then
    port=${port:-${configured_port:-8080}}
    hex=$(printf %04X "$port" 2>/dev/null)
    # 0A is LISTEN in the kernel's own table; no program is needed to read it.
    taken=$(cat /proc/net/tcp /proc/net/tcp6 2>/dev/null \
        | awk -v port=":$hex" '$4 == "0A" && substr($2, length($2) - 4) == port { print $10 }' \
        | head -n 1)
    if [ "$taken" ]; then
        who=
        for process in /proc/[0-9]*; do # only those of the same user can be looked into
            if ls -l "$process/fd" 2>/dev/null | grep -q "socket:\[$taken\]"; then
                who="$(cat "$process/comm") (process ${process#/proc/})"
                break
            fi
        done
        stop 4 "Port $port is taken: ${who:-another program, maybe of another user,} listens on it." \
            "End it, or write another number behind \"port =\" in $config."
    fi
fi

# Options that this bundle's own settings do not have: does the program know them?
help=
for name in $names; do
    case " @CHECKED@ " in *" $name "*) continue ;; esac
    [ "$help" ] || help=$("./$tool" --help 2>/dev/null)
    [ "$help" ] || break
    said=$(printf '%s\n' "$help" | awk -v name="--$name" '
        /^-/ { on = 0; count = split($0, word, /[ ,]+/)
               for (i = 1; i <= count; i++) if (word[i] == name) on = 1 }
        on' | tr -s ' \n' ' ')
    case $said in
        *'has been removed'*)
            stop 2 "$config names the option \"$name\", which $tool no longer has." \
                "It says: ${said#*has been removed. }"
            ;;
        ?*) continue ;;
    esac
    use=
    case $name in
@RENAMED@
    esac
    stop 2 "$config names the option \"$name\", which $tool does not have." \
        ${use:+"There is $use."} "All options: ./$tool --help"
done

# A service or a script started this: nobody looks, and signals are to reach the program itself.
if [ ! -t 2 ] || [ "${QBUILD_NO_PAUSE:-}" ]; then
    exec "./$tool" "$@"
fi
web_ui=@WEB_UI@
[ "$web_ui" = 0 ] || printf '%s\n' \
    "Once it says \"listening\", chat in a browser: http://127.0.0.1:$port" >&2
"./$tool" "$@"
code=$?
case $code in
    0 | 130 | 143) exit "$code" ;;
    132) stop 132 "This processor is too old for this bundle: it needs the level @CPU@." "@OTHER_RECIPE@" ;;
    126 | 127) stop "$code" "$tool cannot be started here: this bundle needs Linux with glibc @GLIBC@ or newer." ;;
esac
stop "$code" "" "$tool ended with code $code; the lines above say why. Its settings are in $config."
