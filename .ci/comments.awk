# Prints lines of Rust comments with more than 120 characters, and code that would be tested if cargo tested the documentation of its
# library, as it does the engine's alone (`doctest` in the others' Cargo.toml). Fails if there are any. Run it with LC_ALL=C, so that it
# counts the bytes of UTF-8 itself.
FNR == 1 { is_fenced = 0 }
/^ *\/\/[\/!] *```/ {
  is_fenced = !is_fenced
  if (is_fenced && $0 !~ /```text$/ && FILENAME !~ /^syncer\/src\//) { printf "%s:%d: no test, since `doctest` is off in its Cargo.toml; say ```text\n", FILENAME, FNR; bad = 1 }
}
/^ *\/\// {
  text = $0
  gsub(/[\200-\277]/, "", text)
  if (length(text) > 120 && text !~ /^ *\/\/[\/!]? *[^ ]*$/) { printf "%s:%d: %d columns, and comments have at most 120\n", FILENAME, FNR, length(text); bad = 1 }
}
END { exit bad }
