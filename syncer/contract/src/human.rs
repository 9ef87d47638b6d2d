//! Formats numbers and durations for people, in messages and summaries.

use std::time::Duration;

const UNITS: [(&str, u64); 6] = [
    ("EB", 1_000_000_000_000_000_000),
    ("PB", 1_000_000_000_000_000),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
];

/// Returns `20.9 MB`: about three digits, in powers of 1000.
pub fn bytes(bytes: u64) -> String {
    match unit_of(bytes) {
        Some((unit, size)) => format!("{} {unit}", in_unit(bytes, size)),
        None => format!("{bytes} B"),
    }
}

/// Returns `19.0/20.9 MB`: both in the unit of `total`.
pub fn bytes_of(part: u64, total: u64) -> String {
    match unit_of(total) {
        Some((unit, size)) => format!("{}/{} {unit}", in_unit(part, size), in_unit(total, size)),
        None => format!("{part}/{total} B"),
    }
}

fn unit_of(bytes: u64) -> Option<(&'static str, u64)> {
    UNITS.into_iter().find(|(_, size)| bytes >= *size)
}

fn in_unit(bytes: u64, size: u64) -> String {
    let value = bytes as f64 / size as f64;
    format!("{value:.*}", if value < 99.95 { 1 } else { 0 })
}

/// Returns a phrase with a number: `one` follows 1, and `many` any other, as in `1 file was`, `2 files were`.
pub fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Returns `1,008`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns `1 file`, `1,008 files`: `noun` with the plural that an `s` makes.
pub fn counted(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

/// Returns `140 ms`, `12.3 s`, `4:07`, `1:02:33`: for a measured time.
pub fn measured(duration: Duration) -> String {
    match duration.as_millis() {
        ms @ ..1_000 => format!("{ms} ms"),
        ms @ ..59_950 => format!("{:.1} s", ms as f64 / 1000.0),
        _ => clock(duration),
    }
}

/// Returns `0:04`, `4:07`, `1:02:33`: for a running clock.
pub fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_three_digits_and_a_unit() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(999), "999 B");
        assert_eq!(bytes(1_000), "1.0 kB");
        assert_eq!(bytes(20_873_216), "20.9 MB");
        assert_eq!(bytes(214_000_000), "214 MB");
        assert_eq!(bytes(99_960_000), "100 MB");
        assert_eq!(bytes(u64::MAX), "18.4 EB");
        assert_eq!(bytes_of(900_000, 20_873_216), "0.9/20.9 MB");
        assert_eq!(bytes_of(3, 900), "3/900 B");
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "file"), "1 file");
        assert_eq!(counted(0, "file"), "0 files");
    }

    #[test]
    fn durations_grow_from_milliseconds_to_hours() {
        let ms = Duration::from_millis;
        assert_eq!(measured(ms(8)), "8 ms");
        assert_eq!(measured(ms(12_340)), "12.3 s");
        assert_eq!(measured(ms(59_949)), "59.9 s");
        assert_eq!(measured(ms(59_950)), "1:00");
        assert_eq!(measured(ms(247_000)), "4:07");
        assert_eq!(clock(ms(3_753_000)), "1:02:33");
        assert_eq!(clock(ms(3_600)), "0:04");
    }
}
