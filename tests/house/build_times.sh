#!/usr/bin/env bash
# Times three builds in a target directory of its own. --help says more.
set -euo pipefail

usage() {
  cat <<'END'
Usage: tests/house/build_times.sh [--root DIR] [--target DIR] [--only cold|rebuild] [--file FILE] [--smoke]

Times, in seconds of the clock, with an empty target directory:
  cold      cargo build --release -p warmline-cli, from nothing
  build     cargo build (dev profile), after one changed comment in the upstream code
  check     cargo check --workspace --all-targets, after one changed comment in the upstream code
Each rebuild runs three times, each time with another comment; the best and all three are printed.

  --root DIR    the checkout to build (default: here); it is copied, so nothing in it changes
  --target DIR  the target directory, which must be empty or missing (default: a new one, removed at
                the end)
  --only WHAT   only `cold` or only `rebuild` (build and check)
  --file FILE   the file with the comment (default: crates/warmline-upstream/src/child/find_program.rs, or a file of
                crates/warmline-upstream/src if that is there)
  --smoke       try the script: cargo check of one crate instead of each command
CARGO_WRAP, if set, stands before each cargo, for instance `nice` or `flock LOCK`. What is fetched from
the network comes first and is not timed.
END
}

root=. target= only= file= smoke=
while (($#)); do
  case $1 in
    --root) root=$2; shift 2 ;;
    --target) target=$2; shift 2 ;;
    --only) only=$2; shift 2 ;;
    --file) file=$2; shift 2 ;;
    --smoke) smoke=1; shift ;;
    -h | --help) usage; exit ;;
    *) usage >&2; exit 2 ;;
  esac
done
if [[ -n $only && $only != cold && $only != rebuild ]]; then usage >&2; exit 2; fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [[ -z $target ]]; then target=$scratch/target; fi
if [[ -d $target && -n $(ls -A "$target") ]]; then
  echo "error: $target is not empty" >&2
  exit 1
fi
mkdir -p "$scratch/tree"
(cd "$root" && git ls-files -z --cached --others --exclude-standard) |
  (cd "$root" && xargs -0 sh -c 'for f; do if [ -e "$f" ]; then printf "%s\0" "$f"; fi; done' _) |
  tar -C "$root" --null -T - -cf - | tar -C "$scratch/tree" -xf -
cd "$scratch/tree"
export CARGO_TARGET_DIR=$target
unset CARGO_INCREMENTAL

if [[ -z $file ]]; then
  for file in crates/warmline-upstream/src/child/find_program.rs crates/warmline-upstream/src/path.rs \
    crates/warmline-upstream/src/lib.rs crates/warmline-upstream/src/child/find_program.rs; do
    if [[ -e $file ]]; then break; fi
  done
fi
if [[ ! -e $file ]]; then
  echo "error: no file $file" >&2
  exit 1
fi

cargo_() { ${CARGO_WRAP:-} cargo "$@"; }

# Runs cargo quietly and leaves the seconds it took in $took.
timed() {
  local began ended log=$scratch/log
  began=$(date +%s.%N)
  if ! cargo_ "$@" >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
  fi
  ended=$(date +%s.%N)
  took=$(awk -v a="$began" -v b="$ended" 'BEGIN { printf "%.1f", b - a }')
}

touched=0
# One more comment at the end of the file. No line moves, so only the comment is new.
touch_comment() {
  touched=$((touched + 1))
  sed -i '/^\/\/ build_times /d' "$file"
  printf '// build_times %s\n' "$touched" >>"$file"
}

rebuilds() {
  local name=$1 all=()
  shift
  timed "$@"
  for _ in 1 2 3; do
    touch_comment
    timed "$@"
    all+=("$took")
  done
  printf '%-8s %8s s   (%s)   cargo %s\n' "$name" "$(printf '%s\n' "${all[@]}" | sort -n | head -1)" "${all[*]}" "$*"
}

cargo_ fetch --locked >/dev/null 2>&1 || true
printf '%s; %s processors; %s\n' "$(rustc --version)" "$(nproc)" "$file"
cold=(build --locked --release -p warmline-cli)
build=(build --locked)
check=(check --locked --workspace --all-targets)
if [[ -n $smoke ]]; then
  cold=(check --locked -p warmline-core)
  build=(check --locked -p warmline)
  check=(check --locked -p warmline --lib)
fi
if [[ $only != rebuild ]]; then
  timed "${cold[@]}"
  printf '%-8s %8s s   cargo %s\n' cold "$took" "${cold[*]}"
fi
if [[ $only != cold ]]; then
  rebuilds build "${build[@]}"
  rebuilds check "${check[@]}"
fi
