//! Decides how many bytes a second a written bandwidth is: one behind rsync's `--bwlimit`, where a bare number counts
//! KiB, or one in a service's file, where 0 is refused.

use contract::parse_bytes;

/// Reads a rate as rsync does: in KiB a second without a unit, 1024 for a letter, 1000 for a letter and a B. 0 is no
/// limit.
pub(super) fn bytes_of_rate(text: &str) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = (text[..end].parse::<f64>().ok()?, text[end..].to_ascii_lowercase());
    let (letter, base) = match unit.as_str() {
        "" => ("k", 1024_f64),
        "b" => ("", 1024_f64),
        unit => match unit.strip_suffix("ib") {
            Some(letter) => (letter, 1024_f64),
            None => unit.strip_suffix('b').map_or((unit, 1024_f64), |letter| (letter, 1000_f64)),
        },
    };
    let power = ["", "k", "m", "g", "t", "p"].iter().position(|its| *its == letter)?;
    Some((number * base.powi(power as i32)) as u64)
}

/// Reads the rate that a service's file sets for a folder: bytes a second. 0 is refused, for it would stop all runs.
pub(crate) fn bandwidth(text: &str) -> Result<u64, String> {
    match parse_bytes(text) {
        Ok(0) => Err("0 would never move anything: leave it out for no limit".into()),
        parsed => parsed.map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_the_units_of_rsync() {
        for (text, bytes) in
            [("1", 1024), ("0", 0), ("2k", 2048), ("2kb", 2000), ("1MiB", 1 << 20), ("7b", 7)]
        {
            assert_eq!(bytes_of_rate(text), Some(bytes), "{text}");
        }
        assert!(["", "k", "1x", "1.2.3", "-1"].iter().all(|text| bytes_of_rate(text).is_none()));
    }
}
