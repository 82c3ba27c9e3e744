#!/usr/bin/env bash
# Tests the adapters with the lowest and the newest versions of their frameworks (lowest.txt, newest.txt), which come before
# those of .venv on the path.
# Needs `make install`; PYTHON is the interpreter that .venv was made with.
set -euo pipefail
cd "$(dirname "$0")/.."
site=$(echo "$PWD"/.venv/lib/python*/site-packages)
for list in integrations/*/lowest.txt integrations/*/newest.txt; do
    "${PYTHON:-python3}" -m venv --clear .venv-versions
    echo "import site; site.addsitedir('$site')" > "$(echo .venv-versions/lib/python*/site-packages)/base.pth"
    .venv-versions/bin/python -m pip install --quiet --no-deps --requirement "$list"
    (cd "$(dirname "$list")" && ../../.venv-versions/bin/python -m pytest -m 'not model')
done
