# Prints lines of Rust comments with more than 120 characters, and fails if there are any. Run it with LC_ALL=C, so that
# it counts the bytes of UTF-8 itself.
/^ *\/\// {
  text = $0
  gsub(/[\200-\277]/, "", text)
  if (length(text) > 120 && text !~ /^ *\/\/[\/!]? *[^ ]*$/) { printf "%s:%d: %d columns, and comments have at most 120\n", FILENAME, FNR, length(text); long = 1 }
}
END { exit long }
