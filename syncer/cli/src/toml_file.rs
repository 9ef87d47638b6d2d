//! Reads a file of TOML field by field, with errors that name file, line and field.

use std::{
    fmt, io,
    ops::Range,
    path::{Path, PathBuf},
};

use thiserror::Error;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Why a configuration cannot be used.
#[derive(Debug, Error)]
pub(crate) enum ConfigFileError {
    #[error("cannot read {path}", path = .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path}:{line}: {what}", path = .path.display())]
    At { path: PathBuf, line: usize, what: String },
}

impl ConfigFileError {
    /// Returns what to do next where the configuration of a service cannot be read.
    pub(crate) fn hint_of_service(&self) -> Option<&'static str> {
        matches!(self, Self::Unreadable { .. }).then_some(
            "hint: name the file of the service's configuration, as `volferry serve FILE` or --config FILE\n",
        )
    }
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

/// A value that a flag can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FlagValue {
    Switch(bool),
    Number(String),
    Text(String),
    List(Vec<String>),
}

impl FlagValue {
    /// Returns the words of a command line that give a flag this value: `--NAME=VALUE`, once for each value of a list.
    pub(crate) fn words(self, name: &str) -> Vec<String> {
        let with = |value: String| format!("--{name}={value}");
        match self {
            Self::Switch(true) => vec![format!("--{name}")],
            Self::Switch(false) => Vec::new(),
            Self::Number(text) | Self::Text(text) => vec![with(text)],
            Self::List(texts) => texts.into_iter().map(with).collect(),
        }
    }
}

/// Writes the value as a file has it.
impl fmt::Display for FlagValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Switch(is_on) => is_on.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => serde_json::Value::from(text.as_str()).fmt(f),
            Self::List(texts) => serde_json::Value::from(texts.as_slice()).fmt(f),
        }
    }
}

impl TomlFile {
    /// Reads a file by `read`, which judges whether the file can be trusted.
    pub(crate) fn read(
        path: &Path,
        read: impl FnOnce(&Path) -> io::Result<String>,
    ) -> Result<Self, ConfigFileError> {
        let unreadable = |source| ConfigFileError::Unreadable { path: path.into(), source };
        Ok(Self::new(path, read(path).map_err(unreadable)?))
    }

    /// Takes the text of a file.
    pub(crate) fn new(path: &Path, text: String) -> Self {
        Self { path: path.into(), text }
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
        let line = self.line(&span);
        ConfigFileError::At { path: self.path.clone(), line, what: what.into() }
    }

    fn line(&self, span: &Range<usize>) -> usize {
        self.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1
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

    /// Returns the file and the line.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.file.path.display(), self.file.line(&self.value.span()))
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

    /// Returns the value of the flag that the field stands for.
    pub(crate) fn value(&self) -> Result<FlagValue, ConfigFileError> {
        match self.value.get_ref() {
            DeValue::Boolean(is_on) => Ok(FlagValue::Switch(*is_on)),
            DeValue::Integer(number) => Ok(FlagValue::Number(number.to_string())),
            DeValue::Float(number) => Ok(FlagValue::Number(number.to_string())),
            DeValue::String(text) => Ok(FlagValue::Text(text.to_string())),
            DeValue::Array(_) => self.texts().map(FlagValue::List),
            _ => Err(self.error("write a text in quotes, a number, true or false, or a list of texts")),
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
