//! The places of the two trees: folders that a run makes, folders below a volume, and links that lead out of it.

use crate::common::prelude::*;

fn pair(way: Way) -> Pair {
    let pair = Pair::new(way);
    fs::create_dir_all(pair.source.join("in/deep")).unwrap();
    tree::file(&pair.source.join("outside"), b"not to be sent");
    tree::file(&pair.source.join("in/deep/file"), b"content");
    pair
}

/// Runs once from a folder below the source into one below the destination.
fn run_below(pair: &Pair, source: &str, destination: &str) -> Run {
    let source = format!("--source-path={source}");
    let destination = format!("--destination-path={destination}");
    pair.run_with(&["--delete", &source], &[&destination])
}

#[test]
fn a_folder_below_a_volume_is_synced_into_one_that_is_made() {
    for way in Way::ALL {
        let pair = pair(way);
        tree::file(&pair.destination.join("beside"), b"not to be touched");
        for turn in ["first", "second"] {
            run_below(&pair, "/in", "/made/for/it").assert_exit(ExitCode::Done);
            let made = pair.destination.join("made/for/it");
            oracle::assert_copy(&made, &pair.source.join("in"), turn);
            assert_eq!(scratch::names(&pair.destination), ["beside", "made"], "{way:?}, {turn} run");
        }
    }
}

#[test]
fn a_destination_is_made_where_its_parent_is_there() {
    for way in Way::ALL {
        let mut pair = pair(way);
        pair.destination = pair.dir().join("new");
        pair.done(&["--delete"]);
        pair.assert_copy("into a new folder");
    }
}

#[test]
fn a_link_that_somebody_put_on_the_volume_leads_nowhere() {
    for way in Way::ALL {
        let pair = pair(way);
        let secret = pair.dir().join("secret");
        fs::create_dir(&secret).unwrap();
        tree::file(&secret.join("identity"), b"private");
        for volume in [&pair.source, &pair.destination] {
            symlink("../secret", volume.join("planted")).unwrap();
        }
        let cases = [
            ("/planted", "/out", "TreeUnreadable", &pair.source),
            ("/in", "/planted", "DestinationUnusable", &pair.destination),
            ("/in", "/planted/deeper", "DestinationUnusable", &pair.destination),
        ];
        for (source, destination, reason, volume) in cases {
            let run = run_below(&pair, source, destination);
            run.assert_exit(ExitCode::Failed);
            let link = volume.join("planted").display().to_string();
            for end in run.ends() {
                let message = &end.report().message;
                assert_eq!(end.reason(), reason, "{way:?}: {message}");
                assert!(message.contains(&format!("{link} is a symbolic link")), "{way:?}: {message}");
            }
        }
        assert_eq!(scratch::names(&secret), ["identity"], "{way:?}");
        assert_eq!(fs::read(secret.join("identity")).unwrap(), b"private");
    }
}

#[test]
fn a_source_that_is_not_there_is_named_and_not_made() {
    for way in Way::ALL {
        let pair = pair(way);
        let run = run_below(&pair, "/in/missing/deeper", "/out");
        run.assert_exit(ExitCode::Failed);
        let missing = pair.source.join("in/missing");
        for end in run.ends() {
            let message = &end.report().message;
            assert!(message.contains(&format!("{} is not there", missing.display())), "{way:?}: {message}");
            assert!(!end.stderr.contains("make it"), "{way:?}: {}", end.stderr);
        }
        assert!(!missing.exists());
    }
}

#[test]
fn a_tree_is_not_synced_into_a_folder_of_itself_that_would_have_to_be_made() {
    let mut pair = pair(Way::Local);
    pair.destination = pair.source.join("in/new");
    let run = pair.run_to(ExitCode::Failed, &[]);
    run.ends().for_each(|end| assert_eq!(end.reason(), "SameTree"));
    assert_eq!(scratch::names(&pair.source.join("in")), ["deep"]);
}

#[test]
fn trees_that_contain_one_another_are_refused_also_where_no_end_sees_both() {
    for way in Way::NETWORK {
        let mut pair = Pair::new(way);
        fs::create_dir(pair.source.join("in")).unwrap();
        tree::file(&pair.source.join("in/file"), b"content");
        let (outer, inner) = (pair.source.clone(), pair.source.join("in"));
        for (source, destination) in
            [(&outer, &outer), (&outer, &inner), (&inner, &outer), (&outer, &inner.join("new"))]
        {
            (pair.source, pair.destination) = (source.clone(), destination.clone());
            for flags in [&[][..], &["-n"]] {
                let run = pair.run_to(ExitCode::Failed, flags);
                run.ends().for_each(|end| assert_eq!(end.reason(), "SameTree", "{way:?} {flags:?}"));
            }
            assert!(!outer.join(".volferry").exists() && !inner.join(".volferry").exists(), "{way:?}");
        }
    }
}
