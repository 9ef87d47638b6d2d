#!/bin/bash -eu
# build.sh: builds every target of syncer/fuzz into $OUT, with the inputs that it starts from and its limits, which are those of `run`. OSS-Fuzz
# calls it in its image, in the clone of the repository.
cp Cargo.lock syncer/fuzz/
cd syncer
cargo fuzz build --release
programs=fuzz/target/x86_64-unknown-linux-gnu/release
"$programs/seeds" seeds
for source in fuzz/fuzz_targets/*.rs; do
  target=$(basename "$source" .rs)
  cp "$programs/$target" "$OUT/"
  printf '[libfuzzer]\nmax_len = 65536\nrss_limit_mb = 512\ntimeout = 10\n' >"$OUT/$target.options"
  for inputs in "seeds/$target" "fuzz/corpus/$target"; do
    [ ! -d "$inputs" ] || zip --quiet --recurse-paths --junk-paths "$OUT/${target}_seed_corpus.zip" "$inputs"
  done
done
