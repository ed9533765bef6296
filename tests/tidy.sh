#!/usr/bin/env bash
# What a reviewer would say first: long files, TODOs nobody can follow, names that say nothing, and
# things of one machine that have no place in the tree. Clippy watches the length of functions.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
found=0

complain() {
  found=1
  printf '%s\n' "$1"
}

sources() { git ls-files --cached --others --exclude-standard -- "$@"; }

while read -r file; do
  lines=$(wc -l <"$file")
  if ((lines > 500)); then complain "$file: $lines lines; a second file is due"; fi
done < <(sources 'crates/**.rs')

while read -r hit; do
  complain "$hit: a TODO needs an issue number or a condition, a FIXME does not survive"
done < <(sources 'crates/**.rs' | xargs -r grep -nE '\bFIXME\b|\bTODO\b' | grep -vE 'TODO\((#[0-9]+|when )' || true)

while read -r file; do
  complain "$file: the name says nothing about what is in it"
done < <(sources 'crates/**.rs' | grep -E '/(utils?|common|helpers?|misc|manager|handler|base|inner|mod)\.rs$' || true)

while read -r hit; do
  complain "$hit: a path of one machine"
done < <(sources ':!tests/tidy.sh' | xargs -r grep -nIE '(^|[^a-zA-Z0-9._-])/(root|work|home/[a-z]+)/' || true)

if ((found)); then exit 1; fi
echo 'tidy: nothing to say'
