//! Measures history that travels: copies of a chain of snapshots to another volume and to object storage, a mounted
//! one, and archives of a snapshot.

use std::{fs, net::SocketAddr, path::PathBuf, process::ExitCode};

use benches::{
    small_files::{fill, let_files_age},
    steps::{Settings, Steps, Way, way},
};
use clap::Parser;
use testkit::{
    ports,
    process::{Daemon, find_program},
    rng::Rng,
};

/// The length of each file in bytes.
const FILE_BYTES: usize = 1000;

/// The name of the S3 server's bucket, and of its account and secret.
const BUCKET: &str = "bench";

/// Another tool for backups: scripts that each do one thing with its repository beside the volume, with a copy of that,
/// and with a repository in the bucket. `$S3` is the server's host and port.
#[derive(Debug)]
struct Other {
    name: &'static str,
    /// What installs it.
    remedy: &'static str,
    version: &'static str,
    init: &'static str,
    backup: &'static str,
    /// Makes room for a first copy.
    prepare_copy: &'static str,
    copy: &'static str,
    s3_init: &'static str,
    s3_backup: &'static str,
    s3_restore: &'static str,
    s3_prune: &'static str,
}

const OTHERS: [Other; 3] = [
    Other {
        name: "restic",
        remedy: "apt-get install restic",
        version: "restic version",
        init: "restic init",
        backup: "cd volume && restic backup --exclude .volferry .",
        prepare_copy: "rm -rf repository2
            restic init -r repository2 --copy-chunker-params --from-repo restic",
        copy: "restic copy --from-repo restic -r repository2",
        s3_init: "rm -rf s3/bench/restic && restic -r s3:http://$S3/bench/restic init",
        s3_backup: "cd volume && restic -r s3:http://$S3/bench/restic backup --exclude .volferry .",
        s3_restore: "restic -r s3:http://$S3/bench/restic restore latest --target restored",
        s3_prune: "restic -r s3:http://$S3/bench/restic forget --keep-last 1 --prune",
    },
    Other {
        name: "rustic",
        remedy: "cargo install rustic-rs",
        version: "rustic --version",
        init: "printf '[repository]\nrepository = \"rustic\"\npassword = \"bench\"\n' > rustic.toml
            printf '[repository]\nrepository = \"rustic2\"\npassword = \"bench\"\n' > rustic2.toml
            rustic init",
        backup: "rustic backup volume --glob '!.volferry'",
        prepare_copy: "rm -rf rustic2",
        copy: "rustic copy --init --target rustic2",
        s3_init: "rm -rf s3/bench/rustic
            printf '[repository]\nrepository = \"opendal:s3\"\npassword = \"bench\"\n[repository.options]
                bucket = \"bench\"\nroot = \"/rustic\"\nendpoint = \"%s\"\nregion = \"us-east-1\"
                access_key_id = \"bench\"\nsecret_access_key = \"bench\"\n' http://$S3 > rustic-s3.toml
            rustic -P rustic-s3 init",
        s3_backup: "rustic -P rustic-s3 backup volume --glob '!.volferry'",
        s3_restore: "rustic -P rustic-s3 restore latest restored",
        s3_prune: "rustic -P rustic-s3 forget --keep-last 1 --prune",
    },
    Other {
        name: "kopia",
        remedy: "go install github.com/kopia/kopia",
        version: "kopia --version | cut -d' ' -f1",
        init: "mkdir kopia
            kopia repository create filesystem --path \"$PWD/kopia\"
            kopia policy set --add-ignore .volferry volume",
        backup: "kopia snapshot create volume",
        prepare_copy: "rm -rf kopia2; mkdir kopia2",
        copy: "kopia repository sync-to filesystem --path \"$PWD/kopia2\"",
        s3_init: "rm -rf s3/bench/kopia
            kopia --config-file s3.config repository create s3 --bucket bench --prefix kopia/ --endpoint $S3 --disable-tls \
                --region us-east-1 --access-key bench --secret-access-key bench
            kopia --config-file s3.config policy set --add-ignore .volferry --keep-latest 1 --keep-hourly 0 \
                --keep-daily 0 --keep-weekly 0 --keep-monthly 0 --keep-annual 0 volume",
        s3_backup: "kopia --config-file s3.config snapshot create volume",
        s3_restore: "kopia --config-file s3.config restore --snapshot-time latest volume restored",
        s3_prune: "kopia --config-file s3.config snapshot expire --delete volume
            kopia --config-file s3.config maintenance run --full --safety none",
    },
];

/// Returns Volferry's way, and that of each other tool.
fn ways<'a>(
    prepare: &'a str,
    script: &'a str,
    others_prepare: impl Fn(&'a Other) -> &'a str,
    others_script: impl Fn(&'a Other) -> &'a str,
) -> Vec<Way<'a>> {
    let others = OTHERS.iter().map(|of| way(of.name, others_prepare(of), others_script(of)));
    std::iter::once(way("volferry", prepare, script)).chain(others).collect()
}

/// Prepares nothing before a measurement.
const NOTHING: fn(&Other) -> &str = |_| "true";

/// Measures copies of a history, its mount and its archives, beside restic and tar where they are installed.
#[derive(Debug, Parser)]
struct Args {
    /// Files in the tree
    #[arg(long, default_value_t = 200_000)]
    files: u64,
    /// Snapshots in the chain, each with 0.1 % of the files changed
    #[arg(long, default_value_t = 20)]
    snapshots: u64,
    /// Mebibytes of the one file that is exported and imported
    #[arg(long, default_value_t = 1024)]
    archive: u64,
    /// The S3 server, versitygw; by default the one on PATH
    #[arg(long, value_name = "PROGRAM")]
    s3: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

fn main() -> ExitCode {
    benches::exit_code(bench(&Args::parse()))
}

fn bench(args: &Args) -> anyhow::Result<bool> {
    // For an image: the volume with its history, four copies of it, and the archives.
    let image = args.files * (24 << 10) + (args.archive << 23);
    let mut steps = Steps::start(&args.settings, args.files, image)?;
    let key = steps.work.trees().join("key").display().to_string();
    let config = steps.work.trees().join("kopia.config").display().to_string();
    steps.variables.extend([
        ("VOLFERRY_KEY_FILE", key),
        ("RESTIC_FROM_PASSWORD", "bench".into()),
        ("KOPIA_CONFIG_PATH", config),
        ("KOPIA_PASSWORD", "bench".into()),
        ("KOPIA_CHECK_FOR_UPDATES", "false".into()),
    ]);
    for of in &OTHERS {
        steps.add(of.name, of.version, "deletes of a restore", of.remedy);
    }
    steps.name("the files", "echo without a mount", "");
    steps.name("tar", "tar --version", "checks");
    steps.shell("mkdir volume")?;
    fill(&steps.work.trees().join("volume"), args.files, FILE_BYTES)?;
    OTHERS.iter().filter(|of| steps.has(of.name)).try_for_each(|of| steps.shell(of.init))?;
    (0..args.snapshots).try_for_each(|nth| one_more(&steps, nth))?;
    copies(&mut steps, args.snapshots)?;
    mounted(&mut steps)?;
    object_storage(&mut steps, args)?;
    archives(&mut steps, args.archive)?;
    steps.finish("history")
}

/// Changes a thousandth of the files, and takes a snapshot with each tool.
fn one_more(steps: &Steps<'_>, nth: u64) -> anyhow::Result<()> {
    steps.change("volume", steps.files / 1000, nth)?;
    steps.shell("$VOLFERRY snapshot create volume")?;
    OTHERS.iter().filter(|of| steps.has(of.name)).try_for_each(|of| steps.shell(of.backup))
}

/// Measures copies to another store of the same kind.
fn copies(steps: &mut Steps<'_>, all: u64) -> anyhow::Result<()> {
    let ours = "$VOLFERRY snapshot copy volume copy --all";
    let first = ways("rm -rf copy; mkdir copy", ours, |of| of.prepare_copy, |of| of.copy);
    steps.step(&format!("copy of {all} snapshots to another volume"), &first, |_, _| Ok(()))?;
    let next = ways("true", ours, NOTHING, |of| of.copy);
    let step = format!("copy of the next one, {} changed", steps.files / 1000);
    steps.step(&step, &next, |steps, round| one_more(steps, all + round))
}

/// Mounts the history anew.
const REMOUNT: &str = "umount mountpoint 2>/dev/null || true; rm -f ready; mkfifo ready
    $VOLFERRY snapshot mount volume mountpoint >ready 2>/dev/null & read -r line <ready";

/// Measures how a mounted history is read for the first time and again, beside the files of the volume.
fn mounted(steps: &mut Steps<'_>) -> anyhow::Result<()> {
    steps.shell("mkdir mountpoint")?;
    let readers = [
        (
            "find",
            "find mountpoint/latest/ | wc -l",
            "find volume -path volume/.volferry -prune -o -print | wc -l",
        ),
        ("tar", "tar -C mountpoint/latest -c . | wc -c", "tar -C volume --exclude .volferry -c . | wc -c"),
    ];
    for (reader, of_mount, of_files) in readers {
        for (pass, prepare) in [("first", REMOUNT), ("second", "true")] {
            let ways = [way("volferry", prepare, of_mount), way("the files", "true", of_files)];
            steps.step(&format!("{reader} in a mounted snapshot, {pass} pass"), &ways, |_, _| Ok(()))?;
        }
    }
    steps.shell("umount mountpoint")
}

/// Measures an S3 server of this machine as a second site.
fn object_storage(steps: &mut Steps<'_>, args: &Args) -> anyhow::Result<()> {
    let Some(server) = args.s3.clone().or_else(|| find_program("versitygw")) else {
        steps.lacks("versitygw", ".ci/tools gateway");
        return Ok(());
    };
    let address: SocketAddr = ports::unused();
    let root = steps.work.trees().join("s3");
    fs::create_dir_all(root.join(BUCKET))?;
    let (port, folder) = (address.to_string(), root.display().to_string());
    let flags = ["--port", &port, "--access", BUCKET, "--secret", BUCKET, "--quiet", "posix", &folder];
    let mut serving = Daemon::start(&server, &flags, steps.work.trees())?;
    serving.accepts(address)?;
    steps.shell("$VOLFERRY snapshot key $VOLFERRY_KEY_FILE")?;
    steps.variables.extend([
        ("AWS_ENDPOINT_URL", format!("http://{address}")),
        ("AWS_ALLOW_HTTP", "true".into()),
        ("AWS_DEFAULT_REGION", "us-east-1".into()),
        ("AWS_REGION", "us-east-1".into()),
        ("AWS_ACCESS_KEY_ID", BUCKET.into()),
        ("AWS_SECRET_ACCESS_KEY", BUCKET.into()),
        ("S3", address.to_string()),
    ]);
    second_site(steps, args.snapshots)
}

fn second_site(steps: &mut Steps<'_>, snapshots: u64) -> anyhow::Result<()> {
    let ours =
        "$VOLFERRY snapshot create volume && $VOLFERRY snapshot copy volume s3://bench/volferry latest";
    let make_room = "rm -rf s3/bench/volferry fresh; mkdir fresh";
    let first = ways(make_room, ours, |of| of.s3_init, |of| of.s3_backup);
    steps.step("backup to S3, first", &first, |_, _| Ok(()))?;
    let again = ways("true", ours, NOTHING, |of| of.s3_backup);
    steps.step("backup to S3, nothing changed", &again, |_, _| Ok(()))?;
    let script = "$VOLFERRY snapshot copy s3://bench/volferry fresh latest
        $VOLFERRY snapshot restore fresh latest";
    let restore = ways("rm -rf fresh; mkdir fresh", script, |_| "rm -rf restored", |of| of.s3_restore);
    steps.step("restore of all from S3", &restore, |_, _| Ok(()))?;
    let script = "$VOLFERRY snapshot prune s3://bench/volferry --keep-last 1";
    let prune = ways("true", script, NOTHING, |of| of.s3_prune);
    // A prune has something to do, because each tool's second site has got a snapshot with changed files.
    let all = snapshots + steps.settings.rounds;
    steps.step("prune of S3 to one snapshot", &prune, |steps, round| {
        steps.change("volume", steps.files / 1000, all + round)?;
        again.iter().filter(|way| steps.has(way.tool)).try_for_each(|way| steps.shell(way.script))
    })
}

/// Measures archives of a snapshot with one large file, beside GNU tar.
fn archives(steps: &mut Steps<'_>, mib: u64) -> anyhow::Result<()> {
    let large = steps.work.trees().join("large");
    fs::create_dir(&large)?;
    fs::write(large.join("file"), Rng::new(7).bytes((mib as usize) << 20))?;
    let_files_age();
    steps.shell("$VOLFERRY snapshot create large")?;
    let export = [
        way("volferry", "rm -f archive", "$VOLFERRY snapshot export large latest --tar > archive"),
        way("tar", "rm -f archive2", "tar -C large --exclude .volferry -c . > archive2"),
    ];
    steps.step(&format!("export of {mib} MiB"), &export, |_, _| Ok(()))?;
    let import = [
        way("volferry", "rm -rf back; mkdir back", "$VOLFERRY snapshot import back --tar < archive"),
        way("tar", "rm -rf back; mkdir back", "tar -C back -x < archive2"),
    ];
    steps.step(&format!("import of {mib} MiB"), &import, |_, _| Ok(()))
}
