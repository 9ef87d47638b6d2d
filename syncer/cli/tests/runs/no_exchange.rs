//! File systems, such as many of FUSE, that can neither exchange two names nor rename without replacing. No such file
//! system can be mounted everywhere, so strace makes the call fail with their error.

use crate::common::prelude::*;

/// Starts a local run in which each call of `renameat2` fails as on such a file system; `renameat` works.
fn sync_without_exchange(pair: &Pair) -> Running {
    let mut command = Command::new("strace");
    command.args(["-f", "--seccomp-bpf", "-qq", "-o", "/dev/null"]);
    command.args(["-e", "trace=renameat2", "-e", "inject=renameat2:error=EINVAL"]).arg(program());
    command.args(["sync", text(&pair.source), text(&pair.destination)]);
    command.args(["--delete", "--delete-limit=100", "--progress=json"]);
    Running::start(command)
}

fn folder(at: &Path) {
    fs::create_dir_all(at.join("below")).unwrap();
    tree::file(&at.join("below/file"), &Rng::new(7).bytes(200_000));
}

#[test]
fn folders_take_the_places_of_other_entries_where_names_cannot_be_exchanged() {
    let pair = Pair::new(Way::Local);
    tree::file(&pair.source.join("file"), b"content");
    std::os::unix::fs::symlink("file", pair.source.join("link")).unwrap();
    folder(&pair.source.join("folder"));
    folder(&pair.source.join("moves"));
    pair.sync("before");
    for name in ["file", "link"] {
        fs::remove_file(pair.source.join(name)).unwrap();
        folder(&pair.source.join(name));
    }
    fs::remove_dir_all(pair.source.join("folder")).unwrap();
    tree::file(&pair.source.join("folder"), b"a file now");
    fs::rename(pair.source.join("moves"), pair.source.join("moved")).unwrap();
    sync_without_exchange(&pair).wait().assert_exit(ExitCode::Done);
    pair.assert_copy("without an exchange of names");
    pair.assert_staging_empty();
    pair.sync_unchanged("after that");
}
