use std::fs;

use super::*;

fn rel(path: &str) -> RelPath {
    path.split('/').fold(RelPath::root(), |at, name| at.join(name.as_bytes()).unwrap())
}

#[test]
fn a_symbolic_link_on_the_way_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("real/below")).unwrap();
    std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
    let root = Root::open(dir.path()).unwrap();
    assert!(root.dir(&rel("real/below")).is_ok());
    assert!(root.dir(&rel("link/below")).is_err());
    assert!(root.dir(&rel("link")).is_err());
    assert!(open_stepwise(root.as_fd(), b"real/below", OFlags::PATH).is_ok());
    assert!(open_stepwise(root.as_fd(), b"link/below", OFlags::PATH).is_err());
}

fn place(trusted: &Path, below: &str) -> TreeLocation {
    TreeLocation { trusted: trusted.into(), below: rel(below) }
}

#[test]
fn a_link_below_the_trusted_folder_leads_nowhere_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let (volume, secret) = (dir.path().join("volume"), dir.path().join("secret"));
    for made in [&volume, &secret] {
        fs::create_dir(made).unwrap();
    }
    let link = volume.join("uploads");
    for target in ["../secret", "/proc/self/root", "nowhere", "."] {
        std::os::unix::fs::symlink(target, &link).unwrap();
        for below in ["uploads", "uploads/deep"] {
            for opened in [Root::enter(&place(&volume, below)), Root::prepare(&place(&volume, below))] {
                assert!(matches!(opened, Err(RootError::Link(path)) if path == link), "{target} {below}");
            }
        }
        fs::remove_file(&link).unwrap();
    }
    assert_eq!(fs::read_dir(&secret).unwrap().count(), 0);
}

#[test]
fn a_link_as_the_trusted_folder_is_the_users_own() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("volume/in")).unwrap();
    std::os::unix::fs::symlink("volume", dir.path().join("link")).unwrap();
    assert!(Root::enter(&place(&dir.path().join("link"), "in")).is_ok());
}

#[test]
fn what_is_missing_is_made_below_the_trusted_folder_and_of_that_the_last_name() {
    let dir = tempfile::tempdir().unwrap();
    let volume = dir.path().join("volume");
    assert!(matches!(Root::enter(&place(&volume, "a")), Err(RootError::Missing(path)) if path == volume));
    Root::prepare(&place(&volume, "a/b")).unwrap();
    assert!(volume.join("a/b").is_dir());
    let missing = Root::enter(&place(&volume, "a/c/d"));
    assert!(matches!(missing, Err(RootError::Missing(path)) if path == volume.join("a/c")));
    let mistyped = dir.path().join("no/such");
    let refused = Root::prepare(&TreeLocation::from(&mistyped));
    assert!(matches!(refused, Err(RootError::Missing(path)) if path == dir.path().join("no")));
    fs::write(volume.join("file"), "").unwrap();
    let refused = Root::prepare(&place(&volume, "file/x"));
    assert!(matches!(refused, Err(RootError::NotAFolder(path)) if path == volume.join("file")));
}

#[test]
fn the_real_path_of_a_folder_to_come_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let real = dir.path().canonicalize().unwrap();
    std::os::unix::fs::symlink(".", dir.path().join("link")).unwrap();
    let to_come = place(&dir.path().join("link/new"), "a");
    assert_eq!(to_come.real_path(), Some(real.join("new/a")));
    assert_eq!(TreeLocation::from(&dir.path().join("no/such")).real_path(), None);
}

#[test]
fn a_path_at_the_limit_is_reached_in_hops() {
    let dir = tempfile::tempdir().unwrap();
    let mut path = RelPath::root();
    let mut at = Root::open(dir.path()).unwrap().fd;
    let name = [b'd'; 200];
    while let Ok(next) = path.join(&name) {
        rustix::fs::mkdirat(&at, &name[..], Mode::RWXU).unwrap();
        at = open_child(&at, &name, OFlags::PATH).unwrap();
        path = next;
    }
    assert!(path.as_bytes().len() > MAX_HOP_BYTES);
    assert!(Root::open(dir.path()).unwrap().read_dir(&path).is_ok());
}
