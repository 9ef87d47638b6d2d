//! Defaults of flags from variables and from the user's file.

use std::process::Output;

use crate::common::prelude::*;
use crate::common::service::Served;

/// A pair with a file of defaults.
struct Home {
    pair: Pair,
    file: PathBuf,
}

impl Home {
    fn new(defaults: &str) -> Self {
        let pair = Pair::new(Way::Local);
        let file = pair.dir().join("volferry/config.toml");
        fs::create_dir(pair.dir().join("volferry")).unwrap();
        fs::write(&file, defaults).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        ["a", "b.tmp", "c.o"].iter().for_each(|name| tree::file(&pair.source.join(name), b"content"));
        Self { pair, file }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.env("XDG_CONFIG_HOME", self.pair.dir()).args(args);
        command
    }

    fn sync(&self, flags: &[&str]) -> Output {
        let ends = ["sync", text(&self.pair.source), text(&self.pair.destination)];
        self.command(&[&ends, flags].concat()).output().unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.pair.destination).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != ".volferry");
        names.sort();
        names
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_flag_comes_before_a_variable_and_that_before_the_file() {
    for (variable, flags, arrives) in [
        (None, &[][..], vec!["a", "c.o"]),
        (Some("*.o"), &[], vec!["a", "b.tmp"]),
        (Some("*.o\n*.tmp"), &[], vec!["a"]),
        (Some("*.o"), &["--exclude=a"], vec!["b.tmp", "c.o"]),
    ] {
        let home = Home::new("exclude = ['x']\n[sync]\nexclude = ['*.tmp']\n[send]\nexclude = ['*']\n");
        let mut command = home.command(&["sync", text(&home.pair.source), text(&home.pair.destination)]);
        let output = command.envs(variable.map(|value| ("VOLFERRY_EXCLUDE", value))).args(flags).output();
        assert!(output.unwrap().status.success());
        assert_eq!(home.names(), arrives, "{variable:?} {flags:?}");
    }
}

#[test]
fn switches_and_counts_can_be_set_and_a_contradicting_flag_counts_more() {
    let home = Home::new("quiet = true\n");
    assert_eq!(errors(&home.sync(&[])), "");
    tree::file(&home.pair.source.join("new"), b"");
    assert!(String::from_utf8_lossy(&home.sync(&["-v"]).stdout).contains("new"));
    let home = Home::new("verbose = 1\n");
    assert!(String::from_utf8_lossy(&home.sync(&[]).stdout).contains("b.tmp"));
}

#[test]
fn a_default_that_the_line_has_no_use_for_does_not_count() {
    let home = Home::new(
        "rsh = 'ssh -p 1'\nlink = 'ssh'\nbootstrap = true\ndelete-limit = 10\nmax-delete = 1\nexclude = ['a']\n\
         connect-timeout = 1\nidentity = 'none'\n",
    );
    assert!(home.sync(&[]).status.success(), "{}", errors(&home.sync(&[])));
    let file = home.pair.source.join("a");
    let single = home.command(&["sync", text(&file), text(&home.pair.destination)]).output().unwrap();
    assert!(single.status.success(), "{}", errors(&single));
    assert_eq!(home.names(), ["a", "b.tmp", "c.o"]);
    fs::remove_file(home.pair.source.join("b.tmp")).unwrap();
    fs::remove_file(home.pair.source.join("c.o")).unwrap();
    let deletes = home.sync(&["--delete"]);
    assert_eq!(deletes.status.code(), Some(4), "{}", errors(&deletes));
}

#[test]
fn defaults_for_ssh_do_not_count_for_a_service_and_its_key_may_be_one() {
    let (mut served, home) =
        (Served::prepare("[folders.all]\npath = \"all\"\nwrite = [\"*\"]\n"), Home::new(""));
    served.folder("all");
    let user = served.user("laptop");
    served.start();
    let key = user.home.join("key");
    let defaults = "rsh = 'ssh -p 1'\nbootstrap = true\nremote-program = 'none'\nconnect-timeout = 9\n";
    fs::write(&home.file, format!("{defaults}identity = '{}'\n", key.display())).unwrap();
    let place = served.place("all");
    let key_flag = format!("--service-key={}", served.key);
    let output = home.command(&["sync", text(&home.pair.source), &place, &key_flag]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(served.path("all").join("a").exists());
}

#[test]
fn defaults_of_the_near_end_count_for_a_far_one() {
    let (sshd, home) = (Sshd::start(), Home::new(""));
    fs::write(&home.file, format!("exclude = ['*.o']\nremote-program = '{}'\n", program().display()))
        .unwrap();
    let (source, destination) = (text(&home.pair.source), text(&home.pair.destination));
    for ends in [[format!("far:{source}"), destination.into()], [source.into(), format!("far:{destination}")]]
    {
        let mut command = sshd.command(&program());
        let output = command.env("XDG_CONFIG_HOME", home.pair.dir()).arg("sync").args(ends).arg(sshd.rsh());
        let output = output.output().unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        assert_eq!(home.names(), ["a", "b.tmp"]);
        fs::remove_file(home.pair.destination.join("a")).unwrap();
        fs::remove_file(home.pair.destination.join("b.tmp")).unwrap();
    }
}

#[test]
fn a_file_that_is_wrong_is_named_with_what_is_wrong() {
    for (defaults, said) in [
        ("exclud = ['a']\n", "config.toml:1: there is no default `exclud`"),
        ("delete = true\n", "no default `delete`"),
        ("[sync]\nnonsense = 1\n", "config.toml:2: there is no default `nonsense`"),
        ("quiet = 'maybe'\n", "quiet takes true or false"),
        ("exclude = 7\n", "exclude takes a list"),
        ("\nexclude = ['a', 7]\n", "config.toml:2: `exclude`: write a list of texts"),
        ("sync = 'all'\n", "config.toml:1: `sync`: write a table"),
        ("quiet = true\nquiet = \n", "config.toml:2: "),
        ("bandwidth-limit = 'fast'\n", "--bandwidth-limit"),
    ] {
        let home = Home::new(defaults);
        let output = home.sync(&[]);
        assert_eq!(output.status.code(), Some(2), "{defaults}");
        assert!(errors(&output).contains(said), "{defaults}: {}", errors(&output));
        assert!(errors(&output).contains("hint: ") || errors(&output).contains("config.toml"), "{defaults}");
    }
}

#[test]
fn a_file_that_others_can_write_to_is_refused() {
    let home = Home::new("quiet = true\n");
    fs::set_permissions(&home.file, fs::Permissions::from_mode(0o620)).unwrap();
    let output = home.sync(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("others can write to it"), "{}", errors(&output));
    let without = home
        .command(&["sync", text(&home.pair.source), text(&home.pair.destination)])
        .env("VOLFERRY_CONFIG", "none")
        .output()
        .unwrap();
    assert!(without.status.success(), "{}", errors(&without));
}

#[test]
fn config_shows_each_default_and_where_it_is_set_as_a_file_of_defaults() {
    let home = Home::new("bandwidth-limit = '10M'\n[sync]\nexclude = ['*.tmp']\n");
    let output = home.command(&["config"]).env("VOLFERRY_QUIET", "1").output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{shown}");
    for line in [
        format!("# {}", home.file.display()),
        "quiet = \"1\" # VOLFERRY_QUIET".into(),
        format!("bandwidth-limit = \"10M\" # {}:1", home.file.display()),
        "[sync]".into(),
        format!("exclude = [\"*.tmp\"] # {}:3", home.file.display()),
        "#   compression".into(),
    ] {
        assert!(shown.lines().any(|shown| shown == line), "{line}: {shown}");
    }
    let again = Home::new(&shown);
    assert!(again.sync(&[]).status.success());
    assert_eq!(again.names(), ["a", "c.o"]);
}
