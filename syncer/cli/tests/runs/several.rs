//! Several sources of one run, and the file of its log.

use crate::common::prelude::*;
use crate::common::process::command;

/// Makes two folders and a file in the folder of a pair, and returns their paths.
fn sources(pair: &Pair) -> [String; 3] {
    let paths = ["one", "two", "file"].map(|name| pair.source.join(name));
    paths[..2].iter().for_each(|path| fs::create_dir(path).unwrap());
    tree::file(&paths[0].join("a"), b"first");
    tree::file(&paths[1].join("a"), b"second");
    tree::file(&paths[2], b"third");
    paths.map(|path| text(&path).to_string())
}

#[test]
fn each_of_several_sources_goes_to_the_destination_under_its_own_name() {
    let pair = Pair::new(Way::Local);
    let [one, two, file] = sources(&pair);
    let (to, report) = (pair.destination.join("new"), pair.dir().join("report"));
    let line = ["sync", &one, &two, &file, text(&to), "--progress=json", "--report", text(&report)];
    let run = pair.start(&line).wait();
    run.assert_exit(ExitCode::Done);
    oracle::assert_copy(&to.join("one"), Path::new(&one), "the first folder");
    oracle::assert_copy(&to.join("two"), Path::new(&two), "the second folder");
    assert_eq!(fs::read_to_string(to.join("file")).unwrap(), "third");
    let finished = run.events.iter().filter(|event| matches!(event, Event::Finished(_)));
    assert_eq!(finished.count(), 3);
    let table = pair.output(&["report", text(&report)]);
    assert!(table.status.success(), "{table:?}");
    let all: Vec<serde_json::Value> =
        serde_json::Deserializer::from_str(&fs::read_to_string(&report).unwrap())
            .into_iter()
            .collect::<Result<_, _>>()
            .unwrap();
    assert_eq!(all.len(), 3);
}

/// A colon divides a host from a path only where there is no such path here.
#[test]
fn a_source_of_this_machine_with_a_colon_in_its_name_keeps_all_of_it() {
    let pair = Pair::new(Way::Local);
    let hours = ["2026-11-28T20:05", "2026-11-28T21:05"].map(|name| pair.source.join(name));
    hours.iter().for_each(|path| tree::files(path, &["file"], text(path)));
    let line = ["sync", text(&hours[0]), text(&hours[1]), text(&pair.destination), "--progress=json"];
    pair.start(&line).wait().assert_exit(ExitCode::Done);
    for hour in &hours {
        oracle::assert_copy(&pair.destination.join(hour.file_name().unwrap()), hour, "an hour");
    }
}

/// Runs `volferry sync` in the folder of a pair.
fn sync_in(pair: &Pair, words: &[&str]) -> Ended {
    let mut command = command(&program(), User::Same, &["sync".into(), "--progress=json".into()]);
    command.args(words).current_dir(pair.dir());
    Running::start(command).wait()
}

#[test]
fn paths_behind_two_dashes_may_begin_with_one() {
    let pair = Pair::new(Way::Local);
    ["-x", "-a", "src", "--delete"]
        .iter()
        .for_each(|name| tree::files(pair.dir(), &[&format!("{name}/file")], name));
    let copied = |words: &[&str], copies: &[(&str, &str)]| {
        sync_in(&pair, words).assert_exit(ExitCode::Done);
        for (copy, source) in copies {
            oracle::assert_copy(&pair.dir().join(copy), &pair.dir().join(source), copy);
        }
    };
    copied(&["--", "src", "-y"], &[("-y", "src")]);
    copied(&["--", "-a", "-b"], &[("-b", "-a")]);
    copied(&["-c", "--", "-a", "-x", "src", "-z"], &[("-z/-a", "-a"), ("-z/-x", "-x"), ("-z/src", "src")]);
    copied(&["-rH", "--", "--delete", "--"], &[("--", "--delete")]);
    copied(&["./-x", "./-w"], &[("-w", "-x")]);
    let refused = sync_in(&pair, &["--", "src", "-oProxyCommand=x:/y"]);
    refused.assert_exit(ExitCode::Usage);
    let hint = "which ssh would take for a flag\nhint: write ./ before a path of this machine";
    assert!(refused.stderr.contains(hint), "{}", refused.stderr);
    sync_in(&pair, &["src", "-Z", "--", "-w"]).assert_exit(ExitCode::Usage);
}

#[test]
fn a_source_that_is_not_there_does_not_keep_the_others_back() {
    let pair = Pair::new(Way::Local);
    let [one, two, _] = sources(&pair);
    let missing = format!("{one}/missing");
    pair.start(&["sync", &missing, &one, &two, text(&pair.destination)]).wait().assert_exit(ExitCode::Failed);
    assert!(pair.destination.join("one/a").exists() && pair.destination.join("two/a").exists());
}

#[test]
fn several_sources_cross_to_another_machine_and_back() {
    let (sshd, pair) = (Sshd::start(), Pair::new(Way::Local));
    let [one, two, file] = sources(&pair);
    let far = |path: &str| format!("far:{path}");
    let remote = format!("--remote-program={}", program().display());
    for (name, sources, to) in [
        ("push", [one.clone(), two.clone(), file.clone()], far(text(&pair.destination.join("push")))),
        ("pull", [far(&one), far(&two), far(&file)], text(&pair.destination.join("pull")).into()),
    ] {
        let mut command = sshd.command(&program());
        command.arg("sync").args(&sources).arg(to).args([sshd.rsh().as_str(), &remote, "--progress=json"]);
        Running::start(command).wait().assert_exit(ExitCode::Done);
        let to = pair.destination.join(name);
        oracle::assert_copy(&to.join("two"), Path::new(&two), name);
        assert_eq!(fs::read_to_string(to.join("file")).unwrap(), "third");
    }
}

#[test]
fn sources_that_could_not_be_told_apart_and_flags_for_one_are_refused() {
    let pair = Pair::new(Way::Local);
    let [one, two, _] = sources(&pair);
    let slash = format!("{two}/");
    let again = format!("{two}/../one");
    let to = text(&pair.destination);
    for (line, said) in [
        (vec![&*one, &*slash], "has no name"),
        (vec![&*one, ".."], "has no name"),
        (vec![&*one, &*again], "has the name of another"),
        (vec![&*one, &*two, "--source-path=a"], "--source-path with several"),
        (vec![&*one, &*two, "--shard=0/2", "--run=r"], "--shard with several"),
        (vec![&*one, &*two, "--filter-from=-"], "standard input"),
    ] {
        let (places, flags): (Vec<_>, Vec<_>) = line.into_iter().partition(|word| !word.starts_with("--"));
        let run = pair.start(&[&["sync"], &places[..], &[to], &flags[..]].concat()).wait();
        run.assert_exit(ExitCode::Usage);
        assert!(run.stderr.contains(said), "{said}: {}", run.stderr);
    }
    assert_eq!(fs::read_dir(&pair.destination).unwrap().count(), 0);
}

#[test]
fn the_log_file_has_each_run_each_failed_file_and_the_changes_that_are_shown() {
    let pair = Pair::new(Way::Local);
    tree::file(&pair.source.join("a"), b"a");
    let log = pair.dir().join("log");
    let flag = format!("--log-file={}", log.display());
    let quiet = pair.start_sync(&[&flag, "--quiet"]).wait();
    assert_eq!(quiet.stderr, "");
    fs::create_dir(pair.destination.join("x")).unwrap();
    tree::file(&pair.destination.join("x/stays"), b"");
    tree::file(&pair.source.join("x"), b"x");
    pair.start_sync(&[&flag]).wait().assert_exit(ExitCode::Partial);
    tree::file(&pair.source.join("b"), b"b");
    pair.start_sync(&[&flag, "-v", "--exclude=x"]).wait().assert_exit(ExitCode::Done);
    let text = fs::read_to_string(&log).unwrap();
    let lines = |what: &str| text.lines().filter(|line| line.contains(what)).count();
    assert_eq!((lines("the run succeeded"), lines("the run failed in part")), (2, 1), "{text}");
    assert_eq!(lines("path=x"), 1, "{text}");
    assert_eq!(lines("a change action=Create kind=File path=\"b\""), 1, "{text}");
}

#[test]
fn what_went_wrong_is_read_once_and_without_the_form_of_a_log() {
    let pair = Pair::new(Way::Local);
    tree::file(&pair.source.join("in-the-way"), b"x");
    let folder = scratch::dir(&pair.destination, "in-the-way");
    tree::file(&folder.join("stays"), b"x");
    let line = ["sync", text(&pair.source), text(&pair.destination)];
    let run = pair.output(&line);
    let stderr = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(3), "{stderr}");
    assert_eq!((stderr.matches("in-the-way").count(), stderr.matches("WARN").count()), (1, 0), "{stderr}");
    fs::remove_file(pair.source.join("in-the-way")).unwrap();
    let run = pair.output(&[&line[..], &["--report=/dev/full"]].concat());
    let stderr = String::from_utf8(run.stderr).unwrap();
    assert_eq!(run.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error: the report cannot be written to /dev/full: "), "{stderr}");
    let quiet = pair.output(&[&line[..], &["--quiet", "--snapshot"]].concat());
    assert_eq!(String::from_utf8(quiet.stderr).unwrap(), "");
    for way in [&[][..], &["--dry-run"]] {
        let said = pair.output(&[&line[..], &["--snapshot"], way].concat());
        let stderr = String::from_utf8(said.stderr).unwrap();
        assert!(stderr.matches("its first snapshot copies").count() < 2, "{stderr}");
    }
}

#[test]
fn a_log_file_that_cannot_be_written_is_refused_before_the_run() {
    let pair = Pair::new(Way::Local);
    let run = pair.start_sync(&["--log-file=/no/such/folder/log"]).wait();
    run.assert_exit(ExitCode::Usage);
    assert!(run.stderr.contains("--log-file /no/such/folder/log"), "{}", run.stderr);
}
