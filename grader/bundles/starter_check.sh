#!/bin/sh
# Grade @SOURCE@ by the public cases: ./check, or ./check --format html --output report.html; ./check --help says more.
# The first time it sets the grader up, for which it needs the network and a minute; after that neither.
here=$(dirname -- "$(readlink -f -- "$0")")
cd -- "$here" || exit 3
exec sh @FOLDER@/scripts/grade run @SOURCE@ --lab @LAB@ "$@"
