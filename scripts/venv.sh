#!/bin/sh
# usage: venv.sh DIR [PYTHON]
# Make the virtual environment DIR, with PYTHON or else the first of python3.11 and python3 that will do.
# One that works is left as it is.
set -eu
dir=$1
python=${2:-}

new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

if new_enough "$dir/bin/python" && "$dir/bin/python" -m pip --version >/dev/null 2>&1; then
    exit 0
fi

if [ -z "$python" ]; then
    for python in python3.11 python3; do
        if new_enough "$python"; then break; fi
    done
fi
if ! new_enough "$python"; then
    echo "regard needs Python 3.11 or later, and $python is not: name one, as in  make PYTHON=/path/to/python3.12" >&2
    exit 1
fi
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    echo "$python cannot make virtual environments: install python3-venv (Debian: apt-get install python3-venv)" >&2
    exit 1
fi
# One that somebody made without pip is completed rather than replaced.
if new_enough "$dir/bin/python" && "$dir/bin/python" -m ensurepip >/dev/null 2>&1; then
    exit 0
fi
rm -rf "$dir"
"$python" -m venv "$dir"
