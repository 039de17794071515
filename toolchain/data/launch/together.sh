#!/bin/sh
# @SUMMARY@
# Made by qbuild from the recipe @RECIPE@. Starts these together; Ctrl-C ends them all, and when
# one ends the others go on.
set -u
cd -- "$(dirname -- "$(readlink -f -- "$0")")" || exit 3
children=
trap 'kill $children 2>/dev/null' INT TERM HUP EXIT
worst=0
for name in @STARTS@; do
    QBUILD_NO_PAUSE=1 "./run-$name.sh" </dev/null &
    children="$children $!"
done
for child in $children; do
    wait "$child" || worst=$?
done
exit "$worst"
