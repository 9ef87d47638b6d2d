//! A run that would empty a volume is refused before anything is touched.

use std::fs;

use contract::ExitCode;

use crate::common::{
    pair::{Pair, Way},
    tree,
};

/// A pair in step, with ten files `0` to `9`.
fn ten_files(way: Way) -> Pair {
    let pair = Pair::new(way);
    (0..10).for_each(|i| tree::file(&pair.source.join(i.to_string()), b"content"));
    pair.sync("before");
    pair
}

#[test]
fn more_deletes_than_the_limit_are_refused_and_as_many_are_not() {
    for way in Way::ALL {
        let pair = ten_files(way);
        (0..6).for_each(|i| fs::remove_file(pair.source.join(i.to_string())).unwrap());
        tree::file(&pair.source.join("9"), b"changed");
        tree::file(&pair.source.join("new"), b"new");
        let run = pair.refuse(&["--delete"], ExitCode::Guard, "DeleteLimitExceeded");
        let message = &run.ends().next().unwrap().report().message;
        for part in ["6 of 10", "50 %"] {
            assert!(message.contains(part), "{message}");
        }
        pair.refuse(&["--delete", "--delete-limit=59"], ExitCode::Guard, "DeleteLimitExceeded");
        let run = pair.run(&["--delete", "--delete-limit=60"]);
        run.assert_exit(ExitCode::Done);
        assert_eq!(run.report().work.files_deleted, 6);
        pair.assert_copy("after a run within the limit");
    }
}

#[test]
fn force_overrides_the_limit() {
    for way in Way::ALL {
        let pair = ten_files(way);
        (0..9).for_each(|i| fs::remove_file(pair.source.join(i.to_string())).unwrap());
        pair.run(&["--delete", "--delete-limit=0", "--force"]).assert_exit(ExitCode::Done);
        pair.assert_copy("after a forced run");
    }
}

#[test]
fn an_emptied_source_is_refused_whatever_the_limit_and_force_overrides() {
    for way in Way::ALL {
        let pair = ten_files(way);
        (0..10).for_each(|i| fs::remove_file(pair.source.join(i.to_string())).unwrap());
        let run = pair.refuse(&["--delete", "--delete-limit=100"], ExitCode::Guard, "SourceEmpty");
        assert!(run.ends().all(|end| end.report().message.contains("10 entries")), "{run:?}");
        pair.run(&["--delete", "--force"]).assert_exit(ExitCode::Done);
        pair.assert_copy("after a forced run");
    }
}

#[test]
fn an_empty_source_without_delete_is_no_danger() {
    for way in Way::ALL {
        let pair = ten_files(way);
        (0..10).for_each(|i| fs::remove_file(pair.source.join(i.to_string())).unwrap());
        let run = pair.run(&[]);
        run.assert_exit(ExitCode::Done);
        assert_eq!(run.report().work.files_deleted, 0);
        assert!((0..10).all(|i| pair.destination.join(i.to_string()).exists()));
    }
}

#[test]
fn what_is_below_a_deleted_directory_counts() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        fs::create_dir(pair.source.join("dir")).unwrap();
        (0..8).for_each(|i| tree::file(&pair.source.join(format!("dir/{i}")), b"content"));
        tree::file(&pair.source.join("file"), b"content");
        pair.sync("before");
        fs::remove_dir_all(pair.source.join("dir")).unwrap();
        pair.refuse(&["--delete"], ExitCode::Guard, "DeleteLimitExceeded");
    }
}

#[test]
fn what_is_below_a_directory_that_becomes_a_file_counts() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        fs::create_dir(pair.source.join("dir")).unwrap();
        (0..8).for_each(|i| tree::file(&pair.source.join(format!("dir/{i}")), b"content"));
        tree::file(&pair.source.join("file"), b"content");
        pair.sync("before");
        fs::remove_dir_all(pair.source.join("dir")).unwrap();
        tree::file(&pair.source.join("dir"), b"a file now");
        pair.refuse(&["--delete"], ExitCode::Guard, "DeleteLimitExceeded");
        pair.run(&["--delete", "--force"]).assert_exit(ExitCode::Done);
        pair.assert_copy("after a forced run");
    }
}
