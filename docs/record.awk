# Draws lines of a terminal, each with a kind ($ for a command), its time in seconds and its text, as a picture that shows them one after the other.
function escaped(text) {
  gsub(/&/, "\\&amp;", text)
  gsub(/</, "\\&lt;", text)
  gsub(/>/, "\\&gt;", text)
  return text
}
BEGIN { at = 0.6 }
{
  text = escaped($3)
  if ($1 == "$") {
    if (NR > 1) { at += 2; rows++ }
    line[++rows] = "<tspan class=\"p\">$ </tspan><tspan class=\"c\">" text "</tspan>"
    when[rows] = at
    # As long as somebody takes to type it, and then as long as the command took.
    at += length($3) * 0.02 + $2
  } else {
    line[++rows] = text
    when[rows] = at
    at += 0.04
  }
}
END {
  height = rows * 19 + 34
  printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n", width * 7.85 + 32, height, \
    label
  print "<style>"
  print "text { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #d6deeb; white-space: pre; animation: show 1ms linear both }"
  print ".p { fill: #7fdbca } .c { fill: #ffffff; font-weight: bold }"
  print "@keyframes show { from { opacity: 0 } to { opacity: 1 } }"
  print "@media (prefers-reduced-motion: reduce) { text { animation: none } }"
  print "</style>"
  printf "<rect width=\"100%%\" height=\"100%%\" rx=\"8\" fill=\"#011627\"/>\n"
  for (row = 1; row <= rows; row++)
    if (line[row] != "")
      printf "<text x=\"16\" y=\"%d\" style=\"animation-delay:%.2fs\">%s</text>\n", row * 19 + 10, when[row], line[row]
  print "</svg>"
}
