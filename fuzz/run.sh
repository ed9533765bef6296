#!/bin/sh
# Runs one fuzz target for some seconds on stable Rust: fuzz/run.sh TARGET SECONDS
#
# Finds are kept in fuzz/corpus/TARGET only by hand: new inputs go to fuzz/target/found/TARGET,
# an input that breaks something to fuzz/target/broken/.
set -eu

target=${1:?usage: fuzz/run.sh TARGET SECONDS}
seconds=${2:-20}
cd "$(dirname "$0")"

build=${CARGO_TARGET_DIR:-target}
host=$(rustc -vV | sed -n 's/^host: //p')
# The flags by which cargo-fuzz asks for coverage; they need no nightly compiler. Build scripts
# and macros stay without them, because of --target.
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing"

mkdir -p "$build/found/$target" "$build/broken"
RUSTFLAGS="$coverage" cargo build --quiet --release --locked --target "$host" --bin "$target"
exec "$build/$host/release/$target" "$build/found/$target" "corpus/$target" \
    -max_total_time="$seconds" -max_len=8192 -rss_limit_mb=1024 -timeout=10 -print_final_stats=1 \
    -artifact_prefix="$build/broken/$target-"
