#!/usr/bin/env bash
# Installs the real servers, the real clients and the conformance suite that the tests run against,
# pinned, into folders beside this file that git ignores. A part is installed again only when its
# pins change, so a second run takes no time. What is missing on the machine itself comes from Debian.
#
#   install.sh          install what is missing or changed
#   install.sh check    only say whether everything is in place
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

readonly python_parts=(mcp1 mcp2 fetch fastmcp2 fastmcp3 fastmcp4 langchain agents)
readonly stamps=.installed
only_check=${1:-}

say() { printf 'parts: %s\n' "$*"; }

give_up() {
  printf 'parts: %s\n' "$*" >&2
  exit 1
}

# --- what the machine must have ------------------------------------------------------------------

missing_packages() {
  command -v cc >/dev/null || printf 'gcc libc6-dev '
  command -v chromium >/dev/null || printf 'chromium '
  command -v curl >/dev/null || printf 'curl '
  command -v git >/dev/null || printf 'git '
  type -P kill >/dev/null || printf 'procps '
  command -v npm >/dev/null || printf 'nodejs npm '
  python3 -c 'import ensurepip, venv' 2>/dev/null || printf 'python3 python3-venv '
}

install_packages() {
  local -a wanted
  read -r -a wanted <<<"$(missing_packages)"
  ((${#wanted[@]})) || return 0
  command -v apt-get >/dev/null || give_up "please install these first: ${wanted[*]}"
  local -a become=()
  if ((EUID != 0)); then become=(sudo); fi
  say "installing from Debian: ${wanted[*]}"
  "${become[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive \
    "${become[@]}" apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null
}

# --- stamps: what a part was installed from ------------------------------------------------------

# Usage: digest WORD FILE...   The place counts too: neither npm's nor Python's folders can move.
digest() { { printf '%s\n' "$PWD" "$1"; cat "${@:2}"; } | sha256sum | cut -d' ' -f1; }

is_current() { [[ -f "$stamps/$1" && "$(<"$stamps/$1")" == "$2" ]]; }

# Usage: part NAME DIGEST WHAT COMMAND...
part() {
  local name=$1 now=$2 what=$3
  if is_current "$name" "$now"; then return 0; fi
  if [[ $only_check == check ]]; then give_up "$what is not in place; run \`make parts\`"; fi
  say "installing $what"
  rm -f "$stamps/$name"
  "${@:4}"
  printf '%s' "$now" >"$stamps/$name"
}

# --- the parts -----------------------------------------------------------------------------------

# Two packages bring a `node`, one for each kind of machine; old versions of npm link neither.
install_node() {
  cd node
  npm ci --loglevel=error </dev/null >/dev/null
  local -a binary=(node_modules/node-linux-*/bin/node)
  [[ -x ${binary[0]} ]] || give_up "there is no Node 22 for $(uname -m)"
  ln -sfn "../${binary[0]#node_modules/}" node_modules/.bin/node
  cd ..
}

install_python() {
  local venv=python/.venv-$1
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input --no-deps \
    --requirement "python/$1.txt" </dev/null
}

main() {
  mkdir -p "$stamps"
  exec 9>"$stamps/lock"
  flock 9
  if [[ $only_check != check ]]; then install_packages; fi
  part node "$(digest "$(uname -m)" node/package.json node/package-lock.json)" \
    'the Node servers and clients, Node 22 and the conformance suite' install_node
  local name
  for name in "${python_parts[@]}"; do
    part "python-$name" "$(digest "$(python3 --version)" "python/$name.txt")" \
      "the Python part of python/$name.txt" install_python "$name"
  done
  say 'all in place'
}

main
