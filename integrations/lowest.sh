#!/usr/bin/env bash
# Tests the adapters with the lowest versions of their frameworks, which come before those of .venv on the path.
# Needs `make install`; PYTHON is the interpreter that .venv was made with.
set -euo pipefail
cd "$(dirname "$0")/.."
site=$(echo "$PWD"/.venv/lib/python*/site-packages)
for lowest in integrations/*/lowest.txt; do
    "${PYTHON:-python3}" -m venv --clear .venv-lowest
    echo "import site; site.addsitedir('$site')" > "$(echo .venv-lowest/lib/python*/site-packages)/base.pth"
    .venv-lowest/bin/python -m pip install --quiet --no-deps --requirement "$lowest"
    (cd "$(dirname "$lowest")" && ../../.venv-lowest/bin/python -m pytest -m 'not model')
done
