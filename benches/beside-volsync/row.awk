# Prints the row of one tree and step: medians of the figures of two tools, ours and theirs. Lines: TOOL TREE STEP
# MILLISECONDS POD-SECONDS WRITES BYTES OBJECTS.
$2 == tree && $3 == step { n = ++count[$1]; for (i = 4; i <= 8; i++) seen[$1, i, n] = $i }
function median(tool, column,    n, i, j, kept, values) {
  n = count[tool]
  for (i = 1; i <= n; i++) values[i] = seen[tool, column, i]
  for (i = 2; i <= n; i++)
    for (j = i; j > 1 && values[j - 1] > values[j]; j--) { kept = values[j]; values[j] = values[j - 1]; values[j - 1] = kept }
  return values[int((n + 1) / 2)]
}
END {
  names["small"] = "1,008 files, 20 MB"; names["many"] = "50,000 files of 1 KiB"; names["large"] = "one file of 1 GiB"
  steps["first"] = "first"; steps["none"] = "no change"; steps["changed"] = "1 % changed"
  printf "| %s | %s | %.1f | %.1f | %d | %d | %d | %d | %.2f | %.2f | %d | %d |\n", names[tree], steps[step],
    median(ours, 4) / 1000, median(theirs, 4) / 1000, median(ours, 5), median(theirs, 5),
    median(ours, 6), median(theirs, 6), median(ours, 7) / 1e6, median(theirs, 7) / 1e6, median(ours, 8), median(theirs, 8)
}
