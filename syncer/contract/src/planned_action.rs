//! A change that a run makes, as it is told before it is made.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::{escape::Escaping, human};

/// A change that a run makes to one entry of the destination, or that a dry run would make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedAction {
    /// The change.
    pub action: Action,
    /// The kind of the entry: at the source, or at the destination if it would be deleted.
    pub kind: EntryKind,
    /// Path relative to the root of the tree, `.` for the root itself; bytes that are not UTF-8 are escaped as `\xNN`.
    pub path: String,
    /// The present path of a folder that would be moved, in the form of `path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The target of a symbolic link, or the file that a hard link is another name of; in the form of `path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The size of the file whose content would be transferred, in bytes; 0 for any other change.
    #[serde(default)]
    pub bytes: u64,
    /// The differences, if both ends have the entry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<Difference>,
}

/// One way in which an entry of the destination differs from the source's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Difference {
    /// The content of a file of the same size, the target of a link, or the number of a device.
    Content,
    /// The size of a file.
    Size,
    /// The modification time.
    Time,
    /// The permission bits.
    Mode,
    /// The owner.
    Owner,
    /// The group.
    Group,
    /// The access control lists.
    Acl,
    /// Other extended attributes.
    Xattr,
}

/// Writes one line for people, without its end. Control characters are escaped, because the path may come from a peer.
impl fmt::Display for PlannedAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = match self.action {
            Action::Create => "create",
            Action::Update => "update",
            Action::Replace => "replace",
            Action::SetMetadata => "set metadata of",
            Action::Delete => "delete",
            Action::Move => "move",
        };
        let kind = match self.kind {
            EntryKind::File => "file",
            EntryKind::Folder => "folder",
            EntryKind::Link => "link",
            EntryKind::Fifo => "FIFO",
            EntryKind::Device => "device",
            EntryKind::Socket => "socket",
            EntryKind::HardLink => "hard link",
        };
        write!(f, "{action} {kind} ")?;
        if let Some(from) = &self.from {
            Escaping(f).write_str(from)?;
            f.write_str(" -> ")?;
        }
        Escaping(f).write_str(&self.path)?;
        match self.bytes {
            0 => Ok(()),
            bytes => write!(f, " ({})", human::bytes(bytes)),
        }
    }
}

/// The kind of change to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// The entry is new.
    Create,
    /// A file gets new content.
    Update,
    /// An entry of another kind, or another link or device, takes its place.
    Replace,
    /// Only mode, owner, time or attributes are set.
    SetMetadata,
    /// The entry is deleted.
    Delete,
    /// A folder is moved here from another path, with all its content.
    Move,
}

/// The kind of an entry of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)] // each is what its name says
pub enum EntryKind {
    File,
    Folder,
    Link,
    Fifo,
    Device,
    Socket,
    HardLink,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_is_one_line_whatever_its_path_holds() {
        let action = |action, kind, path: &str, bytes| PlannedAction {
            action,
            kind,
            path: path.into(),
            from: None,
            target: None,
            bytes,
            differs: Vec::new(),
        };
        let folder = action(Action::SetMetadata, EntryKind::Folder, "a\nb\x1b[2J", 0);
        assert_eq!(folder.to_string(), "set metadata of folder a\\nb\\u{1b}[2J");
        let file = action(Action::Create, EntryKind::File, "f", 12_300);
        assert_eq!(file.to_string(), "create file f (12.3 kB)");
        let small = action(Action::Create, EntryKind::File, "f", 1);
        assert_eq!(small.to_string(), "create file f (1 B)");
        let moved =
            PlannedAction { from: Some("old\r".into()), ..action(Action::Move, EntryKind::Folder, "new", 0) };
        assert_eq!(moved.to_string(), "move folder old\\r -> new");
    }
}
