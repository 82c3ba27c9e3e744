#!/bin/sh
# Write every list of hashes anew: of what is pinned, of the image's packages, and of the tools of CI and of the release.
set -eu
cd "$(dirname "$0")/.."
compile() { uv pip compile --no-config --quiet --generate-hashes --no-annotate --no-header --universal "$@"; }
compile --no-deps --python-version 3.11.5 -o constraints.hashes.txt constraints.txt

named() {  # a list of what is named on standard input, with all that it needs
  cat > renewing.in
  compile --python-version 3.11 --constraint constraints.txt "$@" renewing.in
  rm renewing.in
}
printf '%s\n' pip hatchling editables | named -o deploy/build.txt
printf '%s\n' torch | named -o deploy/torch.txt
apart="isr-rag isr-rag-server $(grep -o '^[a-z0-9-]*==' deploy/torch.txt | tr -d =)"
printf '%s\n' '.[local,cli]' ./server | named $(printf -- '--no-emit-package %s ' $apart) -o deploy/requirements.txt
named -o .github/tools.txt < .github/tools.in
