# Prints lines of prose with more than 120 characters, and fails if there are any. Tables, code blocks, generated
# figures and lines that are one link or path may be longer. Run it with LC_ALL=C, so that it counts the bytes of
# UTF-8 itself.
FNR == 1 { in_code = in_figures = 0 }
/^ *```/ { in_code = !in_code; next }
/^<!-- figures: / { in_figures = 1 }
/^<!-- end of figures -->/ { in_figures = 0 }
in_code || in_figures || /^ *\|/ || /^    / { next }
{ text = $0; gsub(/[\200-\277]/, "", text) }
length(text) > 120 && text !~ /^[-*0-9. ]*[^ ]*$/ { printf "%s:%d: %d columns, and prose has at most 120\n", FILENAME, FNR, length(text); long = 1 }
END { exit long }
