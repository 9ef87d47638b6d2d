//! Numbers of bytes for people, in messages and summaries.

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
}
