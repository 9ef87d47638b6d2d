//! What is on the volume: the list, packs, contents and the log, how they are read, and how a change becomes durable.

pub(crate) mod audit_log;
pub(crate) mod choose_list_copy;
pub(crate) mod clone_or_copy;
pub(crate) mod commit;
pub(crate) mod content_id;
pub(crate) mod exposed_files;
pub(crate) mod folder;
pub(crate) mod folder_changes;
pub(crate) mod job_rules;
pub(crate) mod known_damage;
pub(crate) mod labels;
pub(crate) mod pack;
pub(crate) mod purpose;
pub(crate) mod read_store;
pub(crate) mod readers_lock;
pub(crate) mod room_for_next_list;
pub(crate) mod snapshot_error;
pub(crate) mod snapshot_id;
pub(crate) mod snapshot_list;
pub(crate) mod snapshot_record;
pub(crate) mod store_dir;
pub(crate) mod store_files;
pub(crate) mod trash;
pub(crate) mod walk_folders;

pub use audit_log::{Event, Log};
pub(crate) use clone_or_copy::choose_engine;
pub(crate) use commit::AuditLine;
pub use commit::Writer;
pub(crate) use content_id::id_of_visited;
pub use content_id::{ContentRef, Home, SizedContent, id_of_file};
pub use folder::{EncodedFolder, Folder, FolderFile, FolderId, FolderRef, MAX_FOLDER_BYTES, ObjectRef};
pub(crate) use folder::{FolderBuilder, FolderRow, with_check};
pub use folder_changes::{FolderChanges, StoredFolder};
pub(crate) use job_rules::counts;
pub use job_rules::{JobRules, Period};
pub use known_damage::KnownDamage;
pub(crate) use known_damage::{read_text_file, replace_file};
pub(crate) use labels::check_tags;
pub use labels::{Labels, check_tag};
pub(crate) use pack::{BegunPack, Packing, PartFile, overwrite};
pub use purpose::Purpose;
pub use read_store::{OpenContent, Store};
pub use readers_lock::hold_for_reading;
pub(crate) use readers_lock::lock_out_readers;
pub use snapshot_error::SnapshotError;
pub(crate) use snapshot_error::io_error;
pub use snapshot_id::{NotAnId, SnapshotId};
pub use snapshot_list::{Engine, ListState, MAX_ROOTS_BYTES, NotRoots, Roots, Snapshot};
pub(crate) use store_dir::{StoreFolder, open_folder};
pub(crate) use store_files::{
    PACK_MAGIC, free_bytes, names, open_content_folder, open_file, regular, write_data,
};
pub(crate) use walk_folders::{Referred, gather, walk};
