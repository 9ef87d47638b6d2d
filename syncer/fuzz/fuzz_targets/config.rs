//! A file of TOML, as `volferry serve` and the defaults of flags have it: every field is looked at, and an error names
//! a line of the file.
#![no_main]
#![allow(dead_code)] // the target does not use all of the program's module

#[path = "../../cli/src/toml_file.rs"]
mod toml_file;

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use toml_file::{ConfigFileError, Fields, TomlFile};

fuzz_target!(|text: &str| {
    let file = TomlFile::new(Path::new("serve.toml"), text.into());
    if let Err(error) = file.fields().and_then(look) {
        let ConfigFileError::At { line, .. } = &error else { panic!("{error}") };
        assert!((1..=text.split('\n').count()).contains(line), "{error}");
    }
});

fn look(fields: Fields<'_>) -> Result<(), ConfigFileError> {
    for (name, field) in fields.rest() {
        match field.value() {
            Ok(value) => {
                let _ = value.to_string();
                assert!(value.words(&name).iter().all(|word| word.starts_with("--")));
            }
            Err(_) => look(field.fields()?)?,
        }
    }
    Ok(())
}
