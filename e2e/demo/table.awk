# The statuses of several runs, one file each, as a table: a column a run. Reads no more of YAML than the operator writes.

FNR == 1 { runs++; name[runs] = FILENAME; gsub(/.*\/|\.yaml$/, "", name[runs]); section = part = "" }

/^  [a-zA-Z]+:/ { section = $1 }
/^    [a-zA-Z]+:/ { part = $1 }
section == "lastRun:" && /^      [a-zA-Z]+:/ { sub(":", "", $1); value[runs, part $1] = $2 }

END {
  row("", "names")
  row("entries at the source", "count", "work:filesScanned")
  row("  created", "count", "work:filesCreated")
  row("  updated", "count", "work:filesUpdated")
  row("  deleted", "count", "work:filesDeleted")
  row("bytes at the source", "bytes", "work:bytesTotal")
  row("  of files changed", "bytes", "work:bytesChanged")
  row("  that were not sent", "bytes", "work:bytesReused")
  row("  on the wire", "bytes", "work:bytesOnWire")
  row("files a second", "count", "rates:filesPerSecond")
  row("bytes a second", "bytes", "rates:bytesPerSecond")
  row("peak memory, source", "bytes", "usage:sourcePeakRss")
  row("peak memory, sink", "bytes", "usage:sinkPeakRss")
  row("start the two ends", "time", "timings:podStart")
  row("connect", "time", "timings:connect")
  row("scan", "time", "timings:scan")
  row("plan", "time", "timings:plan")
  row("delta", "time", "timings:delta")
  row("transfer", "time", "timings:transfer")
  row("apply", "time", "timings:apply")
  row("commit", "time", "timings:commit")
  row("snapshot", "time", "timings:snapshot")
  row("total", "time", "timings:total")
}

function row(label, form, key,    run, missing) {
  printf "%-22s", label
  for (run = 1; run <= runs; run++) {
    if (form == "names") {
      printf "%14s", name[run]
    } else if ((run, key) in value) {
      printf "%14s", shown(value[run, key], form)
    } else {
      missing = 1
    }
  }
  printf "\n"
  if (missing) {
    print "table.awk: a status has no " key > "/dev/stderr"
    exit 1
  }
}

function shown(number, form) {
  if (form == "time") return sprintf("%d ms", number)
  if (form == "bytes" && number >= 1048576) return sprintf("%.1f MiB", number / 1048576)
  if (form == "bytes" && number >= 1024) return sprintf("%.1f KiB", number / 1024)
  return sprintf("%d", number)
}
