//! Commands on object storage that are killed at their requests: what is listed there, or on the volume, is whole, and
//! the command that is run again does the rest. `VOLFERRY_KILLS=1000` kills them at each one.

use std::{
    collections::BTreeSet,
    env, fs,
    path::Path,
    process::{Command, Stdio},
    sync::{
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::{Duration, Instant},
};

use crate::{
    bucket::{command, ok, run, text},
    common::{
        object_storage::{Bucket, Fault, Request},
        process::{PATIENCE, program},
        rng::Rng,
    },
    copy::digests,
    volume::{Said, Volume},
};

/// Each command is killed at about so many places, unless `VOLFERRY_KILLS` says otherwise.
const KILLS: usize = 12;

/// The prefix of the state that each command finds.
const BEFORE: &str = "before";

/// Makes a volume with snapshots of which each has packs of its own.
pub fn with_snapshots(count: u64) -> Volume {
    let volume = Volume::new();
    fs::create_dir(volume.path().join("dir")).unwrap();
    for nth in 0..count {
        fs::write(volume.path().join("dir/small"), nth.to_string()).unwrap();
        fs::write(volume.path().join("large"), Rng::new(nth).bytes(60_000)).unwrap();
        volume.create(&[]);
    }
    volume
}

/// A command, what it finds, and what it may leave.
struct Killed<'a> {
    bucket: &'a Bucket,
    /// Makes the command for a store and, if it has one, a volume of its own.
    make: &'a dyn Fn(&str, &Volume) -> Command,
    /// Snapshots that stay, by their ids.
    stay: BTreeSet<String>,
    /// The digests of the trees that a snapshot may have.
    known: BTreeSet<String>,
}

impl Killed<'_> {
    /// Makes the state before the command below another prefix.
    fn begin(&self, prefix: &str) -> (String, Volume) {
        let before = self.bucket.path(BEFORE);
        if before.exists() {
            copy_files(&before, &self.bucket.path(prefix));
        }
        (format!("s3://snapshots/{prefix}"), Volume::new())
    }

    /// Returns the requests of the command when nothing happens to it, and the trees that are listed then.
    fn usual(&self) -> (Vec<Request>, Vec<String>) {
        let (url, own) = self.begin("usual");
        self.bucket.seen();
        Said::from((self.make)(&url, &own).output().unwrap()).exits(0);
        (self.bucket.seen(), self.whole(&url, &own))
    }

    /// Checks that all that is listed is whole, and returns its trees.
    #[track_caller]
    fn whole(&self, url: &str, own: &Volume) -> Vec<String> {
        let mut trees = Vec::new();
        if self.bucket.path(url.trim_start_matches("s3://snapshots/")).join("volferry").exists() {
            let listed = ok(self.bucket, &["list", "--json", url]).json();
            let text = |one: &serde_json::Value, key: &str| one[key].as_str().unwrap().to_owned();
            let ids: BTreeSet<_> = listed.as_array().unwrap().iter().map(|one| text(one, "id")).collect();
            assert!(self.stay.is_subset(&ids), "{:?} of {ids:?}", self.stay);
            trees.extend(listed.as_array().unwrap().iter().map(|one| text(one, "digest")));
            run(self.bucket, &["verify", url]).assert_undamaged();
        }
        if own.path().join(".volferry").exists() {
            trees.extend(digests(own).into_values());
            own.run("verify", &["--no-heal"]).assert_undamaged();
        }
        assert!(trees.iter().all(|tree| self.known.contains(tree)), "{trees:?}");
        trees.sort_unstable();
        trees
    }

    /// Kills the command at one of its requests. Returns false if that did not come.
    fn kill(&self, url: &str, own: &Volume, at: usize, fault: Fault) -> bool {
        let ((reached, is_reached), (dead, is_dead)) = (mpsc::channel::<()>(), mpsc::channel::<()>());
        let nth = AtomicUsize::new(0);
        self.bucket.fail(move |_| {
            if nth.fetch_add(1, SeqCst) != at {
                return Fault::None;
            }
            let _ = reached.send(());
            let _ = is_dead.recv();
            fault
        });
        let mut command = (self.make)(url, own);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let began = Instant::now();
        let ended = loop {
            assert!(began.elapsed() < PATIENCE, "request {at} does not come, and the command does not end");
            match is_reached.recv_timeout(Duration::from_millis(10)) {
                Ok(()) => break false,
                Err(_) if child.try_wait().unwrap().is_some() => break true,
                Err(_) => {}
            }
        };
        child.kill().unwrap();
        child.wait().unwrap();
        drop(dead);
        self.bucket.fail(|_| Fault::None);
        !ended
    }

    /// Kills the command at places that are evenly spread: before the server has a request, with a part of it, and
    /// before the answer. Prints how many kills there were, which `--nocapture` shows.
    fn everywhere(&self) {
        let kills = env::var("VOLFERRY_KILLS").map_or(KILLS, |kills| kills.parse().unwrap());
        let (requests, after) = self.usual();
        let places: Vec<(usize, Fault)> = requests.iter().enumerate().flat_map(ways).collect();
        let (mut killed, mut late, mut rng) = (0, 0, Rng::new(31));
        // A step without common factors with the number of ways meets each of them.
        let step =
            (1..).map(|more| places.len() / kills.max(1) + more).find(|step| step % 2 != 0 && step % 3 != 0);
        for (nth, (at, way)) in places.iter().enumerate().step_by(step.unwrap()) {
            let prefix = format!("of{nth}");
            let (url, own) = self.begin(&prefix);
            // The order of requests that are made at the same time varies, and with it their number.
            let is_killed = self.kill(&url, &own, *at, *way);
            killed += usize::from(is_killed);
            late += usize::from(!is_killed);
            self.whole(&url, &own);
            // What goes on is killed, too, anywhere.
            let other = rng.below(requests.len() as u64) as usize;
            killed += usize::from(self.kill(&url, &own, other, *way));
            let said = Said::from((self.make)(&url, &own).output().unwrap());
            assert_eq!(said.code, Some(0), "request {at} of {}, {way:?}: {said:?}", requests.len());
            assert_eq!(self.whole(&url, &own), after, "request {at} of {}, {way:?}", requests.len());
            let _ = fs::remove_dir_all(self.bucket.path(&prefix));
        }
        eprintln!("killed {killed} times, at {} requests", requests.len());
        assert!(killed > 5 && late * 10 <= killed + 9, "killed {killed} times, and {late} had ended before");
    }
}

/// Returns how a command is killed at a request.
fn ways((at, request): (usize, &Request)) -> Vec<(usize, Fault)> {
    let cut = [0, request.len / 2].map(|len| (at, Fault::CutRequest(len)));
    // A request without a body is not cut.
    let cuts = usize::try_from(request.len).unwrap_or(usize::MAX).min(2);
    [&[(at, Fault::None)], &cut[..cuts]].concat()
}

pub fn copy_files(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (here, there) = (entry.path(), to.join(entry.file_name()));
        if here.is_dir() {
            copy_files(&here, &there);
        } else {
            fs::copy(&here, &there).unwrap();
        }
    }
}

fn set(items: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    items.into_iter().collect()
}

#[test]
fn a_copy_into_object_storage_is_killed_at_its_requests() {
    let (bucket, from) = (Bucket::new(), with_snapshots(6));
    let make = |url: &str, _: &Volume| command(&bucket, &["copy", "--all", text(&from), url]);
    let known = set(digests(&from).into_values());
    Killed { bucket: &bucket, make: &make, stay: set([]), known }.everywhere();
}

#[test]
fn a_copy_back_is_killed_at_its_requests() {
    let (bucket, from) = (Bucket::new(), with_snapshots(4));
    ok(&bucket, &["copy", "--all", text(&from), &format!("s3://snapshots/{BEFORE}")]);
    let make = |url: &str, own: &Volume| command(&bucket, &["copy", "--all", url, text(own)]);
    let (stay, known) = (set(digests(&from).into_keys()), set(digests(&from).into_values()));
    Killed { bucket: &bucket, make: &make, stay, known }.everywhere();
}

#[test]
fn a_prune_is_killed_at_its_requests() {
    let (bucket, from) = (Bucket::new(), with_snapshots(6));
    ok(&bucket, &["copy", "--all", text(&from), &format!("s3://snapshots/{BEFORE}")]);
    let make = |url: &str, _: &Volume| command(&bucket, &["prune", "--keep-last", "1", url]);
    let newest = from.list().last().unwrap()["id"].as_str().unwrap().to_owned();
    let known = set(digests(&from).into_values());
    Killed { bucket: &bucket, make: &make, stay: set([newest]), known }.everywhere();
}

/// The run drops the snapshot before it, so that it prunes as well.
#[test]
fn a_run_into_object_storage_is_killed_at_its_requests() {
    let (bucket, from) = (Bucket::new(), with_snapshots(1));
    let make = |url: &str, _: &Volume| {
        let of_snapshots = command(&bucket, &[]);
        let mut run = Command::new(program());
        run.args(["sync", text(&from), url, "--snapshot", "--snapshot-job=job", "--snapshot-keep-last=1"]);
        for (name, value) in of_snapshots.get_envs() {
            run.env(name, value.unwrap());
        }
        run
    };
    let run = |url: &str| {
        Said::from(make(url, &from).output().unwrap()).exits(0);
        let listed = ok(&bucket, &["list", "--json", url]).json();
        listed[0]["digest"].as_str().unwrap().to_owned()
    };
    let before = run(&format!("s3://snapshots/{BEFORE}"));
    fs::write(from.path().join("large"), Rng::new(7).bytes(60_000)).unwrap();
    let known = set([before, run("s3://snapshots/other")]);
    Killed { bucket: &bucket, make: &make, stay: set([]), known }.everywhere();
}
