//! Side-by-side runs.
fn main() {}
