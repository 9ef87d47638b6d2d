//! Reads a file of TOML field by field, with errors that name file, line and field.

use std::{
    io,
    ops::Range,
    path::{Path, PathBuf},
};

use thiserror::Error;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::trusted_file::read_trusted;

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub(crate) enum ConfigFileError {
    #[error("cannot read {path}", path = .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path}:{line}: {what}", path = .path.display())]
    At { path: PathBuf, line: usize, what: String },
}

/// The text of a file, in which errors find their lines.
pub(crate) struct TomlFile {
    path: PathBuf,
    text: String,
}

/// A table, from which fields are taken one by one.
pub(crate) struct Fields<'a> {
    file: &'a TomlFile,
    /// The names that lead to the table, each with a dot behind it.
    above: String,
    span: Range<usize>,
    table: DeTable<'a>,
}

/// A field's value.
pub(crate) struct Field<'a> {
    file: &'a TomlFile,
    /// The whole name, such as `folders.photos.queue`.
    pub(crate) name: String,
    value: Spanned<DeValue<'a>>,
}

impl TomlFile {
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigFileError> {
        let text = read_trusted(path);
        let unreadable = |source| ConfigFileError::Unreadable { path: path.into(), source };
        Ok(Self { path: path.into(), text: text.map_err(unreadable)? })
    }

    /// Returns the fields of the file.
    pub(crate) fn fields(&self) -> Result<Fields<'_>, ConfigFileError> {
        let parsed = DeTable::parse(&self.text);
        let table = parsed.map_err(|error| self.error(error.span().unwrap_or_default(), error.message()))?;
        let span = table.span();
        Ok(Fields { file: self, above: String::new(), span, table: table.into_inner() })
    }

    /// Returns a path, which may be relative to the folder of the file.
    pub(crate) fn resolve(&self, path: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    fn error(&self, span: Range<usize>, what: impl Into<String>) -> ConfigFileError {
        let line = self.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1;
        ConfigFileError::At { path: self.path.clone(), line, what: what.into() }
    }
}

impl<'a> Fields<'a> {
    /// Takes a field, if it is there.
    pub(crate) fn take(&mut self, name: &str) -> Option<Field<'a>> {
        let value = self.table.remove(name)?;
        Some(Field { file: self.file, name: format!("{}{name}", self.above), value })
    }

    /// Takes a field that has to be there.
    pub(crate) fn require(&mut self, name: &str) -> Result<Field<'a>, ConfigFileError> {
        let missing = format!("`{}{name}` is missing", self.above);
        self.take(name).ok_or_else(|| self.file.error(self.span.clone(), missing))
    }

    /// Takes all fields that are left, with their names below this table.
    pub(crate) fn rest(self) -> impl Iterator<Item = (String, Field<'a>)> {
        let (file, above) = (self.file, self.above);
        self.table.into_iter().map(move |(name, value)| {
            let name = name.into_inner().into_owned();
            (name.clone(), Field { file, name: format!("{above}{name}"), value })
        })
    }

    /// Refuses fields that nobody took.
    pub(crate) fn end(self) -> Result<(), ConfigFileError> {
        match self.rest().next() {
            Some((_, unknown)) => Err(unknown.error("there is no such field")),
            None => Ok(()),
        }
    }
}

impl<'a> Field<'a> {
    /// Returns an error that names this field.
    pub(crate) fn error(&self, what: impl std::fmt::Display) -> ConfigFileError {
        self.file.error(self.value.span(), format!("`{}`: {what}", self.name))
    }

    pub(crate) fn text(&self) -> Result<&str, ConfigFileError> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.error("write a text in quotes")),
        }
    }

    /// Reads a text or a number by a parser of flags.
    pub(crate) fn parse<T, E: std::fmt::Display>(
        &self,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<T, ConfigFileError> {
        parse(&self.word()?).map_err(|error| self.error(error))
    }

    /// Returns a list of texts.
    pub(crate) fn texts(&self) -> Result<Vec<String>, ConfigFileError> {
        let wrong = || self.error("write a list of texts in quotes, such as [\"a\", \"b\"]");
        let DeValue::Array(values) = self.value.get_ref() else { return Err(wrong()) };
        let text = |value: &Spanned<DeValue<'a>>| match value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            _ => Err(wrong()),
        };
        values.iter().map(text).collect()
    }

    /// Returns the fields of a table.
    pub(crate) fn fields(self) -> Result<Fields<'a>, ConfigFileError> {
        let wrong = self.error("write a table");
        let (file, above, span) = (self.file, format!("{}.", self.name), self.value.span());
        match self.value.into_inner() {
            DeValue::Table(table) => Ok(Fields { file, above, span, table }),
            _ => Err(wrong),
        }
    }

    /// Returns the flags of the command line that express the field: `--NAME=VALUE`, once for each value of a list.
    pub(crate) fn flags(&self, name: &str) -> Result<Vec<String>, ConfigFileError> {
        match self.value.get_ref() {
            DeValue::Boolean(true) => Ok(vec![format!("--{name}")]),
            DeValue::Boolean(false) => Ok(Vec::new()),
            DeValue::Array(_) => {
                Ok(self.texts()?.into_iter().map(|value| format!("--{name}={value}")).collect())
            }
            _ => Ok(vec![format!("--{name}={}", self.word()?)]),
        }
    }

    fn word(&self) -> Result<String, ConfigFileError> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text.to_string()),
            DeValue::Integer(number) => Ok(number.to_string()),
            _ => Err(self.error("write a text in quotes, or a number")),
        }
    }
}
