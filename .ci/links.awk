# Checks the links of Markdown files to other files of the repository and to headings, and fails if one leads nowhere. Links
# of the web are left alone, but for those to files of this repository. Run it in the repository's top folder with all
# Markdown files as arguments, in the C locale.
function slug(heading,   text) {
  text = tolower(heading)
  gsub(/\]\([^)]*\)/, "", text)
  gsub(/[`*\[\]]/, "", text)
  gsub(/[^a-z0-9 _\200-\377-]/, "", text)
  gsub(/ /, "-", text)
  return text
}
function folder(path) { return match(path, /.*\//) ? substr(path, 1, RLENGTH) : "" }
function flat(path,   parts, n, i, kept, out) {
  n = split(path, parts, "/")
  for (i = 1; i <= n; i++) {
    if (parts[i] == "" || parts[i] == ".") continue
    if (parts[i] == ".." && kept > 0) { kept--; continue }
    stack[++kept] = parts[i]
  }
  for (i = 1; i <= kept; i++) out = out (i > 1 ? "/" : "") stack[i]
  return out
}
function is_there(path) { return path == "" || system("test -e '" path "'") == 0 }
function note(link) { links[++count] = link; from[count] = FILENAME; line[count] = FNR }

FNR == 1 { in_code = 0; delete seen }
/^ *(```|~~~)/ { in_code = !in_code; next }
in_code { next }
/^#+ / {
  heading = $0
  sub(/^#+ +/, "", heading)
  name = slug(heading)
  anchors[FILENAME "#" name (seen[name]++ ? "-" seen[name] - 1 : "")] = 1
}
/<a id="/ { rest = $0; while (match(rest, /<a id="[^"]*"/)) { anchors[FILENAME "#" substr(rest, RSTART + 7, RLENGTH - 8)] = 1; rest = substr(rest, RSTART + RLENGTH) } }
{
  rest = $0
  gsub(/`[^`]*`/, "", rest)
  while (match(rest, /\]\([^) ]+\)/)) {
    note(substr(rest, RSTART + 2, RLENGTH - 3))
    rest = substr(rest, RSTART + RLENGTH)
  }
}
END {
  own = "https://github.com/volferry/volferry/(blob|tree)/main/"
  for (i = 1; i <= count; i++) {
    link = links[i]; base = folder(from[i])
    if (link ~ "^" own) { sub("^" own, "", link); base = "" }
    if (link ~ /^[a-z]+:/) continue
    anchor = ""
    if (match(link, /#.*/)) { anchor = substr(link, RSTART + 1); link = substr(link, 1, RSTART - 1) }
    path = link == "" ? from[i] : flat(base link)
    if (!(path in known)) known[path] = is_there(path)
    if (!known[path]) why = "there is no " path
    else if (anchor != "" && path ~ /\.md$/ && !((path "#" anchor) in anchors)) why = path " has no heading #" anchor
    else continue
    printf "%s:%d: %s\n", from[i], line[i], why
    dead = 1
  }
  exit dead
}
