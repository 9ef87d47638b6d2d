//! Commands that look into snapshots: `find`, `stats`, `status`, `diff --content`; and restores of what was looked at.

use serde_json::Value;

use crate::common::prelude::*;
use crate::volume::Volume;

#[test]
fn a_pattern_finds_paths_in_all_snapshots_with_their_versions() {
    let volume = Volume::new();
    let put = |path: &str, content: &str| tree::files(volume.path(), &[path], content);
    put("reports/2026.csv", "one");
    put("reports/notes", "notes");
    let first = volume.create(&[]);
    put("deep/er/2027.csv", "two");
    let second = volume.create(&[]);
    put("reports/2026.csv", "other");
    let third = volume.create(&[]);
    fs::remove_dir_all(volume.path().join("reports")).unwrap();
    let last = volume.create(&[]);
    let found = volume.run("find", &["*.csv", "--json"]).json();
    let rows: Vec<(String, Vec<(String, String)>)> = found
        .as_array()
        .unwrap()
        .iter()
        .map(|path| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let versions = path["versions"].as_array().unwrap();
            let versions = versions.iter().map(|it| (text(&it["first"]), text(&it["last"]))).collect();
            (text(&path["path"]), versions)
        })
        .collect();
    let expected = [
        ("deep/er/2027.csv".to_owned(), vec![(second.clone(), last.clone())]),
        ("reports/2026.csv".to_owned(), vec![(first.clone(), second), (third.clone(), third)]),
    ];
    assert_eq!(rows, expected);
    let said = volume.ok("find", &["/reports/"]);
    assert!(said.starts_with("reports\n") && said.contains(&first), "{said}");
    assert_eq!(volume.ok("find", &["2028*"]), "");
    assert_eq!(volume.run("find", &[""]).code, Some(2), "nothing matches that");
}

#[test]
fn stats_say_what_only_one_snapshot_needs_and_a_prune_frees_about_that() {
    let volume = Volume::new();
    fs::write(volume.path().join("shared"), vec![9; 500_000]).unwrap();
    let ids: Vec<String> = (0..3_u8)
        .map(|nth| {
            fs::write(volume.path().join("own"), vec![nth + 1; 200_000 + 100_000 * usize::from(nth)])
                .unwrap();
            volume.create(&[])
        })
        .collect();
    let stats = volume.run("stats", &["--json"]).json();
    for (nth, one) in stats["snapshots"].as_array().unwrap().iter().enumerate() {
        let bytes = |field: &str| one[field].as_u64().unwrap();
        let large = 200_000 + 100_000 * nth as u64;
        assert_eq!(one["id"].as_str(), Some(&*ids[nth]));
        assert!((large..large + 2000).contains(&bytes("ownBytes")), "{one}");
        assert!((500_000..502_000).contains(&bytes("sharedBytes")), "{one}");
        assert_eq!(bytes("bytes"), bytes("ownBytes") + bytes("sharedBytes"));
    }
    assert!((1_400_000..1_410_000).contains(&stats["bytes"].as_u64().unwrap()), "{stats}");
    assert_eq!(stats["fileBytes"].as_u64(), Some(3 * 500_000 + 900_000));
    let before = volume.allocated();
    volume.ok("forget", &[&ids[1]]);
    volume.ok("prune", &["--forgotten"]);
    let freed = before - volume.allocated();
    assert!((290_000..320_000).contains(&freed), "{freed}");
    assert!(volume.ok("stats", &[]).contains("All together take"));
}

#[test]
fn the_status_of_a_volume_is_what_a_diff_with_a_snapshot_of_it_says() {
    for seed in 1..5 {
        let (volume, mut rng) = (Volume::new(), Rng::new(seed));
        tree::random(volume.path(), &mut rng, 60, Shape::Unprivileged);
        let first = volume.create(&[]);
        assert_eq!(volume.ok("status", &[]), "", "seed {seed}: nothing has changed");
        assert_eq!(volume.ok("status", &["-c"]), "", "seed {seed}: nothing has changed");
        for _ in 0..12 {
            rng.pick(&Edit::ALL).unwrap().apply(volume.path(), &mut rng);
        }
        let [quick, thorough] = [&[][..], &["-c"]].map(|flags| volume.ok("status", flags));
        let second = volume.create(&[]);
        let expected = volume.ok("diff", &[&first, &second]);
        assert_eq!(thorough, expected, "seed {seed}");
        let paths = |text: &str| -> Vec<String> { text.lines().map(|line| line[2..].to_owned()).collect() };
        assert_eq!(paths(&quick), paths(&expected), "seed {seed}: by sizes and times");
        assert_eq!(volume.ok("status", &[&second]), "");
    }
}

#[test]
fn a_diff_shows_the_lines_that_differ() {
    let volume = Volume::new();
    fs::write(volume.path().join("text"), "one\ntwo\nthree\n").unwrap();
    fs::write(volume.path().join("binary"), b"\0\x01").unwrap();
    let first = volume.create(&[]);
    fs::write(volume.path().join("text"), "one\n2\nthree\n").unwrap();
    fs::write(volume.path().join("binary"), b"\0\x02").unwrap();
    fs::write(volume.path().join("new"), "new\n").unwrap();
    let second = volume.create(&[]);
    let said = volume.ok("diff", &[&first, &second, "--content"]);
    let expected = format!(
        "M binary\nthe contents of binary are no text, or longer than 1 MiB\n\
         + new\n--- {first}:new\n+++ {second}:new\n@@ -0,0 +1 @@\n+new\n\
         M text\n--- {first}:text\n+++ {second}:text\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
    );
    assert_eq!(said.strip_prefix("m .\n").unwrap_or(&said), expected);
}

#[test]
fn a_restore_of_several_paths_leaves_all_else_as_it_is() {
    let (volume, mut rng) = (Volume::new(), Rng::new(4));
    tree::files(volume.path(), &["a/one", "a/two", "b/c/three", "b/c/four", "b/five", "six"], "before");
    tree::random(&volume.path().join("b/c"), &mut rng, 20, Shape::Unprivileged);
    volume.create(&["--tag", "first"]);
    let before = Snapshot::of(volume.path());
    fs::remove_dir_all(volume.path().join("b/c")).unwrap();
    for path in ["a/one", "a/two", "b/five", "six", "new"] {
        fs::write(volume.path().join(path), "after it was changed").unwrap();
    }
    let changed = Snapshot::of(volume.path());
    let paths = ["--path", "a/one", "--path", "b/c", "--path", "six", "--path", "b/c/three"];
    volume.ok("restore", &[&["first", "--no-safety"], &paths[..]].concat());
    let now = Snapshot::of(volume.path());
    for path in ["a/one", "b/c", "six"] {
        now.only(path.as_bytes()).assert_like(&before.only(path.as_bytes()), COPY, path);
    }
    for path in ["a/two", "b/five", "new"] {
        now.only(path.as_bytes()).assert_like(&changed.only(path.as_bytes()), UNTOUCHED, path);
    }
    let said = volume.run("restore", &["first", "--path", "a", "--path", "no/such"]);
    assert!(said.code == Some(1) && said.stderr.contains("no/such"), "{said:?}");
}

#[test]
fn a_restore_does_what_was_shown_or_nothing() {
    let volume = Volume::new();
    tree::files(volume.path(), &["a/one", "a/two", "three"], "before");
    volume.create(&["--tag", "first"]);
    let before = Snapshot::of(volume.path());
    fs::write(volume.path().join("a/one"), "changed since").unwrap();
    fs::write(volume.path().join("new"), "new").unwrap();
    let plan = |args: &[&str]| {
        let said = volume.run("restore", &[&["first", "-n"], args].concat()).exits(0);
        let at = said.stderr.find("The plan is ").unwrap() + "The plan is ".len();
        said.stderr[at..at + 32].to_owned()
    };
    let shown = plan(&[]);
    assert_eq!(shown, plan(&[]), "the same as long as nothing changes");
    assert_ne!(shown, plan(&["--path", "a"]));
    fs::write(volume.path().join("three"), "changed after it was shown").unwrap();
    let changed = Snapshot::of(volume.path());
    let said = volume.run("restore", &["first", "--plan", &shown]);
    assert!(said.code == Some(1) && said.stderr.contains("something else than the plan"), "{said:?}");
    Snapshot::of(volume.path()).assert_like(&changed, UNTOUCHED, "nothing was changed");
    assert_eq!(volume.list().len(), 1, "no state before was kept");
    let shown = plan(&[]);
    volume.ok("restore", &["first", "--plan", &shown]);
    Snapshot::of(volume.path()).assert_like(&before, COPY, "what was shown");
    let other = volume.path().with_file_name("other");
    let to = ["--to", other.to_str().unwrap()];
    let shown = plan(&to);
    volume.ok("restore", &[&["first", "--plan", &shown], &to[..]].concat());
    Snapshot::of(&other).assert_like(&before, COPY, "a folder that was made");
    assert_eq!(volume.run("restore", &["first", "--plan", "nonsense"]).code, Some(2));
    let said = volume.run("restore", &["first", "-n"]);
    assert!(said.code == Some(0) && said.stderr.ends_with("no plan to carry out\n"), "{said:?}");
    fs::set_permissions(volume.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let shown = plan(&[]);
    volume.ok("restore", &["first", "--plan", &shown]);
    Snapshot::of(volume.path()).assert_like(&before, COPY, "a plan of nothing but the folder's own mode");
}

#[test]
fn a_plan_is_of_the_snapshot_that_was_shown() {
    let volume = Volume::new();
    for (tag, content) in [("first", "111"), ("second", "222")] {
        fs::write(volume.path().join("file"), content).unwrap();
        volume.create(&["--tag", tag]);
    }
    fs::write(volume.path().join("file"), "3333").unwrap();
    let said = volume.run("restore", &["first", "-n"]).exits(0);
    let shown = said.stderr.split("The plan is ").nth(1).unwrap()[..32].to_owned();
    assert_eq!(volume.run("restore", &["second", "--plan", &shown]).code, Some(1));
    assert_eq!(fs::read_to_string(volume.path().join("file")).unwrap(), "3333");
}

#[test]
fn a_further_name_of_a_file_has_the_versions_of_its_content() {
    let volume = Volume::new();
    let path = |name: &str| volume.path().join(name);
    fs::write(path("a"), "first").unwrap();
    fs::hard_link(path("a"), path("b")).unwrap();
    let first = volume.create(&[]);
    fs::write(path("a"), "second").unwrap();
    let second = volume.create(&[]);
    for name in ["a", "b"] {
        let versions = volume.run("history", &[name, "--json"]).json();
        assert_eq!(versions.as_array().unwrap().len(), 2, "{versions}");
        assert_eq!(volume.ok("diff", &[&first, &second, name]).trim(), format!("M {name}"));
        let text = volume.ok("diff", &[&first, &second, name, "--content"]);
        assert!(text.contains("-first") && text.contains("+second"), "{text}");
    }
}

#[test]
fn each_name_of_a_file_differs_as_the_file_does() {
    let volume = Volume::new();
    let path = |name: &str| volume.path().join(name);
    fs::write(path("a"), "one").unwrap();
    fs::write(path("leads"), "stays").unwrap();
    [("a", "b"), ("leads", "next")]
        .iter()
        .for_each(|(one, other)| fs::hard_link(path(one), path(other)).unwrap());
    let first = volume.create(&[]);
    fs::write(path("b"), "other").unwrap();
    fs::remove_file(path("leads")).unwrap();
    let expected = "M a\nM b\n- leads\n";
    let without_root = |said: String| {
        said.lines().filter(|line| !line.ends_with(" .")).map(|line| format!("{line}\n")).collect::<String>()
    };
    assert_eq!(without_root(volume.ok("status", &[])), expected);
    let second = volume.create(&[]);
    assert_eq!(without_root(volume.ok("diff", &[&first, &second])), expected);
    let found = volume.ok("find", &["b"]);
    assert!(found.contains("3 B") && found.contains("5 B"), "{found}");
}

#[test]
fn a_pattern_that_takes_back_is_refused() {
    let volume = Volume::new();
    fs::write(volume.path().join("!a"), "").unwrap();
    volume.create(&[]);
    let said = volume.run("find", &["!a"]);
    assert!(said.code == Some(2) && said.stderr.contains("write \\!a for names that do"), "{said:?}");
    assert!(volume.ok("find", &["\\!a"]).contains("!a"));
}
