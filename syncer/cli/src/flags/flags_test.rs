//! Tests that flags and parameters say the same, and that each command takes what has an effect there.
use std::path::PathBuf;

use clap::CommandFactory as _;
use contract::{
    ChangedBlocks, Chown, Compare, Compression, DeleteLimit, DeleteTiming, Demands, FilesFrom, History,
    OtherSource, Ownership, Preserve, Retention, RunParams, Shard, SnapshotEngine, SnapshotParams,
    SnapshotVerify, VolumeId, WriteMode,
};
use proptest::prelude::*;

const OTHER_SOURCES: [Option<OtherSource>; 4] = [
    None,
    Some(OtherSource::Refuse),
    Some(OtherSource::Accept),
    Some(OtherSource::Only(VolumeId::new([7; 16]))),
];

use super::*;

fn parse(args: &[String]) -> Result<RunParams, clap::Error> {
    let line = ["volferry", "send", "--identity=i", "a"].into_iter().map(String::from);
    match Flags::try_parse_from(line.chain(args.iter().cloned()))?.command {
        Command::Send(send) => {
            let send = send.into_inner();
            Ok(send.wire.add_to(send.params.into()))
        }
        other => panic!("`send` was read as {other:?}"),
    }
}

fn parse_demands(args: &[String]) -> Result<Demands, clap::Error> {
    let line = ["volferry", "receive", "--identity=i", "a"].into_iter().map(String::from);
    match Flags::try_parse_from(line.chain(args.iter().cloned()))?.command {
        Command::Receive(receive) => {
            let receive = receive.into_inner();
            let (snapshot, backup) = (receive.snapshot.into(), receive.backup);
            Ok(backup.add_to(Demands { snapshot, ..receive.demands.into() }))
        }
        other => panic!("`receive` was read as {other:?}"),
    }
}

fn any_preserve() -> impl Strategy<Value = Preserve> {
    let ownership = prop::sample::select(vec![Ownership::Auto, Ownership::Always, Ownership::Never]);
    (ownership, any::<[bool; 7]>()).prop_map(|(ownership, on)| Preserve {
        ownership,
        permissions: on[0],
        times: on[1],
        xattrs: on[2],
        acls: on[3],
        hard_links: on[4],
        sparse: on[5],
        specials: on[6],
    })
}

fn any_compression() -> impl Strategy<Value = Compression> {
    prop_oneof![Just(Compression::Auto), Just(Compression::None), (1..=19u8).prop_map(Compression::Level)]
}

fn any_history() -> impl Strategy<Value = History> {
    prop::sample::select(&[History::None, History::Kept, History::All][..])
}

fn any_shard() -> impl Strategy<Value = Shard> {
    (1..=Shard::MAX_COUNT)
        .prop_flat_map(|count| (0..count, Just(count)))
        .prop_map(|(index, count)| Shard { index, count })
}

/// Generates patterns of all characters, with more of those that a command line could misread.
fn any_patterns() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(prop_oneof![".*", "-{0,2}[a-z=, ]*", "[\\s\"'\\\\*!#/]*"], 0..4)
}

const CHMOD: &[&str] = &["D755,F644", "go=rX,u+w"];

fn any_chown() -> impl Strategy<Value = Option<Chown>> {
    any::<(Option<u16>, Option<u16>)>().prop_map(|(uid, gid)| {
        (uid.is_some() || gid.is_some()).then(|| Chown { uid: uid.map(u32::from), gid: gid.map(u32::from) })
    })
}

prop_compose! {
    fn any_params()(
        (run, delete, force, delete_limit) in (".*", any::<bool>(), any::<bool>(), 0..=100u8),
        [dry_run, verify, image, delete_anyway, before, adopt] in any::<[bool; 6]>(),
        (include, exclude, preserve) in (any_patterns(), any_patterns(), any_preserve()),
        [ignore_files, update, one_file_system, cross_mounts] in any::<[bool; 4]>(),
        [existing, ignore_existing, removes, content_hash] in any::<[bool; 4]>(),
        (chmod, chown) in (prop::option::of(prop::sample::select(CHMOD)), any_chown()),
        [min_size, max_size, max_delete, bandwidth_limit] in any::<[Option<u64>; 4]>(),
        (compare, in_place, compression) in (0..3usize, any::<bool>(), any_compression()),
        (shard, volume) in (prop::option::of(any_shard()), any::<Option<[u8; 16]>>()),
        (list, blocks) in (prop::option::of((".+", any::<bool>())), prop::option::of(".+")),
        (filter, demands, history) in (any_patterns(), any_demands(), any_history()),
    ) -> RunParams {
        RunParams {
            run,
            dry_run,
            verify,
            image,
            content_hash,
            changed_blocks: blocks.map(|file| ChangedBlocks { file, ..ChangedBlocks::default() }),
            delete,
            delete_timing: [DeleteTiming::After, DeleteTiming::Before][usize::from(delete && before)],
            adopt: delete && adopt,
            delete_anyway: delete && delete_anyway,
            delete_limit: DeleteLimit(delete_limit),
            force,
            include,
            exclude,
            ignore_files: ignore_files && filter.is_empty(),
            filter,
            remove_source_files: removes && !delete,
            min_size,
            max_size,
            max_delete: max_delete.filter(|_| delete),
            update,
            files_from: list.map(|(file, from0)| FilesFrom { file, from0, paths: Vec::new() }),
            one_file_system,
            cross_mounts: delete && cross_mounts && !one_file_system,
            existing,
            ignore_existing,
            chmod: chmod.filter(|_| preserve.permissions).map(|changes| changes.parse().unwrap()),
            chown: chown.filter(|_| preserve.ownership == Ownership::Always),
            compare: [Compare::Metadata, Compare::Content, Compare::Size][compare],
            preserve,
            write: if in_place { WriteMode::InPlace } else { WriteMode::Atomic },
            compression,
            bandwidth_limit,
            shard,
            expect_volume: volume.map(VolumeId::new),
            itemize_changes: false,
            source_snapshot: None,
            snapshot_before: None,
            restore_paths: Vec::new(),
            trust_store: false,
            keep_going: false,
            source_id: None,
            history,
            demands,
        }
    }
}

prop_compose! {
    fn any_demands()(
        snapshot in prop::option::of(any_snapshot()),
        backup_dir in prop::option::of("[ =a-z/-]{1,9}"),
        other_source in prop::sample::select(&OTHER_SOURCES[..]),
        history in any_history(),
    ) -> Demands {
        let backup_dir = backup_dir.map(PathBuf::from);
        Demands { snapshot, history, backup_dir, other_source, ..Demands::default() }
    }
}

prop_compose! {
    fn any_snapshot()(
        tags in prop::collection::vec("[a-z=-]{1,5}", 0..3),
        job in "[a-z/-]{0,5}",
        [last, hourly, daily, weekly, monthly, yearly] in any::<[u32; 6]>(),
        within_seconds in prop::option::of(0..u64::from(u32::MAX)),
        kept in prop::collection::btree_set("[a-z=-]{1,5}", 0..3),
        max_bytes in any::<Option<u64>>(),
        verify in prop::option::of((1..u64::MAX, any::<Option<u64>>())),
        min_keep in any::<Option<u32>>(),
        engine in prop::sample::select(&[SnapshotEngine::Auto, SnapshotEngine::Clone, SnapshotEngine::Copy][..]),
    ) -> SnapshotParams {
        let verify = verify.map(|(parts, bandwidth_limit)| SnapshotVerify { parts, bandwidth_limit });
        let keep =
            Retention { last, hourly, daily, weekly, monthly, yearly, within_seconds, tags: kept, max_bytes };
        SnapshotParams { tags, job, engine, keep, min_keep, verify }
    }
}

proptest! {
    #[test]
    fn any_parameters_survive_the_command_line(params in any_params()) {
        let demands = Demands::of(&params);
        prop_assert_eq!(parse_demands(&demands.to_args()).unwrap(), demands);
        let params = RunParams { demands: Demands::default(), ..params };
        prop_assert_eq!(parse(&params.to_args()).unwrap(), params);
    }
}

#[test]
fn no_flags_mean_the_default_parameters() {
    assert_eq!(parse(&[]).unwrap(), RunParams::default());
}

/// Lists the flags of each command. A command does not take flags that have no effect there.
#[test]
fn each_command_takes_the_flags_that_have_an_effect_there() {
    const KEYGEN: &str = "help out";
    const PLACES: [&str; 2] = ["source_path", "destination_path"];
    const OUTPUT: &str =
        "check_free help itemize_changes log_file log_format progress quiet report run verbose";
    const LINK: &str = "connect connect_timeout exchange identity link listen";
    const REMOTE: &str = "bootstrap compression connect_timeout identity link remote_program rsh service_key";
    const WIRE: &str = "compression";
    const DEMANDS: &str = "delete_limit dry_run exclude expect_volume history image no_delete once";
    const SNAPSHOT: &str = "snapshot snapshot_engine snapshot_job snapshot_keep_daily snapshot_keep_hourly snapshot_keep_last \
                            snapshot_keep_monthly snapshot_keep_tag snapshot_keep_weekly snapshot_keep_within \
                            snapshot_keep_yearly snapshot_max_bytes snapshot_min_keep snapshot_tag snapshot_verify \
                            snapshot_verify_bandwidth_limit";
    const RESTORE: &str = "key_file restore_paths snapshot_before source_snapshot trust_store keep_going";
    const PARAMS: &str = "adopt bandwidth_limit changed_blocks checksum chmod chown compare content_hash \
                          cross_mounts delete delete_anyway delete_limit dry_run exclude exclude_from \
                          existing expect_volume files_from filter filter_from force from0 history \
                          ignore_existing ignore_files image include include_from max_delete max_size \
                          min_size no_acls no_hard_links no_permissions no_sparse no_specials no_times \
                          no_xattrs one_file_system ownership remove_source_files shard size_only update \
                          verify write";
    for (command, flags) in [
        ("keygen", vec![KEYGEN]),
        ("send", vec![OUTPUT, LINK, WIRE, PARAMS, PLACES[0], "source_snapshot trust_store keep_going once"]),
        ("receive", vec![OUTPUT, LINK, DEMANDS, SNAPSHOT, "backup_dir other_source", PLACES[1]]),
        (
            "sync",
            vec![OUTPUT, REMOTE, PARAMS, SNAPSHOT, RESTORE, "backup_dir other_source", PLACES[0], PLACES[1]],
        ),
    ] {
        let mut all = Flags::command();
        all.build();
        let command = all.find_subcommand(command).unwrap();
        let mut taken: Vec<_> = command
            .get_arguments()
            .filter(|arg| !arg.is_positional())
            .map(|arg| arg.get_id().as_str())
            .collect();
        let mut expected: Vec<_> = flags.iter().flat_map(|flags| flags.split_whitespace()).collect();
        taken.push("help");
        taken.sort_unstable();
        taken.dedup();
        expected.sort_unstable();
        assert_eq!(taken, expected, "{}", command.get_name());
    }
}

#[test]
fn deletes_in_spite_of_failures_are_deletes() {
    let parse = |args: &[&str]| parse(&args.iter().map(ToString::to_string).collect::<Vec<_>>());
    assert!(parse(&["--delete=before", "--delete-anyway"]).unwrap().delete_anyway);
    let refused = parse(&["--delete-anyway"]).unwrap_err();
    assert_eq!(refused.kind(), clap::error::ErrorKind::MissingRequiredArgument);
    assert!(refused.to_string().contains("--delete"), "{refused}");
}

#[test]
fn help_begins_with_what_one_uses_first() {
    let mut all = Flags::command();
    all.build();
    let names: Vec<_> = all.get_subcommands().map(clap::Command::get_name).collect();
    assert_eq!(names[..4], ["sync", "snapshot", "send", "receive"]);
    assert_eq!(names[names.len() - 3..], ["generate", "remote", "help"]);
    let sync = all.find_subcommand_mut("sync").unwrap().render_help().to_string();
    let headings: Vec<_> =
        sync.lines().filter(|line| line.ends_with(':') && !line.starts_with(' ')).collect();
    assert_eq!(headings[..3], ["Arguments:", "Options:", "Files:"], "{sync}");
    let (_, files) = sync.split_once("Files:\n").unwrap();
    let flags: Vec<_> = files.lines().filter_map(|line| line.trim().strip_prefix('-')).collect();
    assert!(flags[0].starts_with("n, --dry-run") && flags[1].starts_with("-delete"), "{files}");
    let (_, options) = sync.split_once("Options:\n").unwrap();
    let (options, _) = options.split_once("\n\n").unwrap();
    assert_eq!(options.lines().count(), 1, "{options}");
}

#[test]
fn the_flags_are_consistent() {
    Flags::command().debug_assert();
}

#[test]
fn flags_that_are_built_later_leave_the_description_of_their_command() {
    let (first, mut built) = (Flags::command(), Flags::command());
    built.build();
    for command in first.get_subcommands() {
        let later = built.find_subcommand(command.get_name()).unwrap();
        assert_eq!(later.get_about(), command.get_about());
        assert_eq!(later.get_long_about(), command.get_long_about());
    }
}

#[test]
fn every_flag_is_shown_and_explained() {
    let mut all = Flags::command();
    all.build();
    let shown: usize = all.get_subcommands().map(|command| command.get_arguments().count()).sum();
    assert!(shown > 100, "{shown} flags of all commands");
    for command in all.get_subcommands() {
        for arg in command.get_arguments() {
            assert!(!arg.is_hide_set(), "{} {} is hidden", command.get_name(), arg.get_id());
            assert!(arg.get_help().is_some(), "{} {} has no help", command.get_name(), arg.get_id());
        }
    }
}
