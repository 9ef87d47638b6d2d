use std::error::Error;

/// Returns an error and its causes on one line. A cause that the text ends with already is not repeated.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let next = error.to_string();
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer: {0}")]
    struct Repeats(#[source] std::fmt::Error);

    #[test]
    fn a_chain_says_each_thing_once() {
        assert_eq!(chain(&Repeats(std::fmt::Error)), format!("outer: {}", std::fmt::Error));
    }
}
