//! `--filter` decides as rsync does: random rules on random trees, by both programs.

use crate::common::prelude::*;

/// The number of random trees.
const SEEDS: u64 = 60;

/// Every few of them, a run goes over the network.
const OVER_NETWORK: u64 = 6;

/// Few names, so that rules and trees meet often.
const NAMES: [&str; 9] = ["a", "b", "ab", "a.o", "b.o", "x", "sub", "a[b", "c d"];

/// Parts of patterns: all that has a meaning to rsync.
const PARTS: [&str; 28] = [
    "a",
    "b",
    "ab",
    "x",
    "sub",
    ".o",
    "*",
    "*",
    "**",
    "***",
    "?",
    "/",
    "/",
    "/",
    "[ab]",
    "[!a]",
    "[^b]",
    "[a-c]",
    "[]a]",
    "[[:alpha:]]",
    "\\a",
    "\\*",
    "\\[",
    "[",
    "a[b",
    "c d",
    ".",
    "b.o",
];

fn pattern(rng: &mut Rng) -> String {
    let parts = 1 + rng.below(5);
    let mut text: String = (0..parts).map(|_| *rng.pick(&PARTS).unwrap()).collect();
    if rng.once_in(3) {
        text.insert(0, '/');
    }
    if rng.once_in(4) {
        text.push_str(rng.pick(&["/", "/*", "/**", "/***"]).unwrap());
    }
    // Names of merge files stay, since both programs read them.
    text
}

fn decision(rng: &mut Rng) -> String {
    let kinds = ["- ", "- ", "- ", "+ ", "+ ", "-! ", "+! ", "exclude ", "include_", "-,! "];
    format!("{}{}", rng.pick(&kinds).unwrap(), pattern(rng))
}

/// Returns rules for the command line; merge files are in the folder `dir`.
fn rules(rng: &mut Rng, dir: &Path) -> Vec<String> {
    let mut rules = vec!["+ .rules".to_string(), "+ .ignore".to_string()];
    for nth in 0..1 + rng.below(5) {
        match rng.below(10) {
            0 => rules.push(rng.pick(&[": .rules", ":n .rules", "dir-merge .rules"]).unwrap().to_string()),
            1 => rules.push(rng.pick(&[":- .ignore", ":n- .ignore", ":+ .ignore"]).unwrap().to_string()),
            2 => {
                let file = dir.join(format!("merged{nth}"));
                let lines: Vec<_> = (0..rng.below(4)).map(|_| decision(rng)).collect();
                fs::write(&file, format!("# a comment\n\n{}\n", lines.join("\n"))).unwrap();
                rules.push(format!("{} {}", rng.pick(&[".", "merge"]).unwrap(), file.display()));
            }
            _ => rules.push(decision(rng)),
        }
    }
    rules
}

/// Fills a folder with files and folders of few names, some with files of rules.
fn fill(root: &Path, rng: &mut Rng, content: &str, with_rules: bool) {
    let mut dirs = vec![root.to_path_buf()];
    for _ in 0..40 {
        let path = rng.pick(&dirs).unwrap().join(rng.pick(&NAMES).unwrap());
        if path.exists() {
            continue;
        }
        if rng.once_in(2) && path.strip_prefix(root).unwrap().components().count() < 4 {
            fs::create_dir(&path).unwrap();
            dirs.push(path);
        } else {
            tree::file(&path, content.as_bytes());
        }
    }
    for dir in dirs.iter().filter(|_| with_rules) {
        if rng.once_in(3) {
            let mut lines: Vec<_> = (0..1 + rng.below(3)).map(|_| decision(rng)).collect();
            if rng.once_in(6) {
                lines.insert(lines.len() / 2, "!".into());
            }
            tree::file(&dir.join(".rules"), lines.join("\n").as_bytes());
        }
        if rng.once_in(4) {
            tree::file(&dir.join(".ignore"), format!("; no\n{}\n", pattern(rng)).as_bytes());
        }
    }
}

/// Returns the paths and contents of a tree.
fn shape(root: &Path) -> Vec<String> {
    let found = Snapshot::of(root);
    let contents: std::collections::BTreeMap<_, _> = found.files().collect();
    let show = |path: &[u8]| {
        let content =
            contents.get(path).map_or("/".into(), |content| String::from_utf8_lossy(content).into_owned());
        format!("{} {content}", path.escape_ascii())
    };
    found.entries().map(|(path, _)| show(path)).collect()
}

fn by_rsync(pair: &Pair, rules: &[String]) -> Vec<String> {
    let copies = scratch::scratch();
    let to = copies.path().join("destination");
    assert!(Command::new("cp").arg("-a").arg(&pair.destination).arg(&to).status().unwrap().success());
    let mut rsync = Command::new("rsync");
    rsync.args(["-a", "--force", "--delete-after"]).args(rules.iter().map(|rule| format!("--filter={rule}")));
    let output = rsync.arg(format!("{}/", pair.source.display())).arg(&to).output().unwrap();
    // 23: a folder that is not empty stays in the way of a file.
    assert!([Some(0), Some(23)].contains(&output.status.code()), "{rules:?}: {output:?}");
    shape(&to)
}

#[test]
fn random_rules_on_random_trees_decide_as_in_rsync() {
    for seed in 0..SEEDS {
        let way = if seed % OVER_NETWORK == 0 { Way::SinkListens } else { Way::Local };
        let (pair, mut rng) = (Pair::new(way), Rng::new(seed));
        fill(&pair.source, &mut rng, "source", true);
        // The destination has no entry of another kind than the source: what stays in its way is another matter.
        fs::remove_dir(&pair.destination).unwrap();
        assert!(
            Command::new("cp").arg("-a").arg(&pair.source).arg(&pair.destination).status().unwrap().success()
        );
        fill(&pair.destination, &mut rng, "old", false);
        let rules = rules(&mut rng, pair.dir());
        let expected = by_rsync(&pair, &rules);
        let filters: Vec<String> = rules.iter().map(|rule| format!("--filter={rule}")).collect();
        let mut flags = vec!["--delete", "--delete-limit=100", "--force"];
        flags.extend(filters.iter().map(String::as_str));
        pair.done(&flags);
        let found = shape(&pair.destination);
        let differs = |a: &[String], b: &[String]| -> Vec<String> {
            a.iter().filter(|line| !b.contains(line)).cloned().collect()
        };
        assert!(
            found == expected,
            "seed {seed}, {way:?}, {rules:#?}\nonly ours: {:#?}\nonly rsync's: {:#?}",
            differs(&found, &expected),
            differs(&expected, &found)
        );
    }
}

#[test]
fn what_a_file_of_rules_excludes_is_neither_sent_nor_changed_nor_deleted() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        let file = |root: &Path, path: &str, text: &str| {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            tree::file(&root.join(path), text.as_bytes());
        };
        file(&pair.source, "sub/.rules", "- *.tmp\n- /top\n");
        for path in ["sub/a.tmp", "sub/deep/b.tmp", "sub/top", "sub/deep/top", "c.tmp"] {
            file(&pair.source, path, "source");
        }
        for path in ["sub/a.tmp", "sub/theirs.tmp", "sub/gone/d.tmp", "sub/gone/e", "f.tmp"] {
            file(&pair.destination, path, "old");
        }
        let flags = ["--filter=: .rules", "--delete", "--delete-limit=100"];
        for turn in ["first", "second"] {
            pair.done(&flags);
            let expected = [
                "c.tmp source",
                "sub /",
                "sub/.rules - *.tmp\n- /top\n",
                "sub/a.tmp old",
                "sub/deep /",
                "sub/deep/top source",
                "sub/gone /",
                "sub/gone/d.tmp old",
                "sub/theirs.tmp old",
            ];
            assert_eq!(shape(&pair.destination), expected, "{way:?}, {turn}");
        }
    }
}

#[test]
fn a_folder_whose_rules_cannot_be_read_is_left_out_and_named() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        fs::create_dir(pair.source.join("sub")).unwrap();
        tree::file(&pair.source.join("sub/secret"), b"source");
        tree::file(&pair.source.join("sub/.rules"), b"- secret\nnonsense\n");
        let run = pair.run_to(ExitCode::Partial, &["--filter=: .rules"]);
        assert!(!pair.destination.join("sub/secret").exists(), "{way:?}");
        let [failure] = run.report().failures.as_slice() else { panic!("{:?}", run.report().failures) };
        assert_eq!(failure.path, "sub/.rules", "{way:?}");
        assert!(failure.error.contains("`nonsense` is of no kind"), "{}", failure.error);
    }
}

#[test]
fn a_rule_that_is_none_of_ours_is_refused_before_the_run() {
    let pair = Pair::new(Way::Local);
    for rule in ["nonsense", "P theirs", "-s x", ": a/b", ". /no/such/file"] {
        let run = pair.start_sync(&[&format!("--filter={rule}")]).wait();
        run.assert_exit(ExitCode::Usage);
        assert!(run.stderr.contains(rule) || run.stderr.contains("/no/such/file"), "{}", run.stderr);
    }
}

#[test]
fn a_rule_is_typed_as_for_rsync() {
    for flags in [&["-f", "- left"][..], &["--filter", "- left"], &["--filter=- left"]] {
        let pair = Pair::new(Way::Local);
        tree::file(&pair.source.join("left"), b"out");
        tree::file(&pair.source.join("taken"), b"along");
        pair.done(flags);
        assert!(
            pair.destination.join("taken").exists() && !pair.destination.join("left").exists(),
            "{flags:?}"
        );
    }
}
