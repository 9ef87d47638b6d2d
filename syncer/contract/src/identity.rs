use std::{
    fmt, fs,
    io::{self, Write as _},
    path::Path,
    str::FromStr,
};

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    contact::Fingerprint,
    identity_error::IdentityError,
    own_key::OwnKey,
    private_file::{KeyOwner, MAX_FILE_BYTES, read_private, write_private},
    report::Side,
};

/// The most bytes that the name of a job may have.
pub const MAX_JOB_BYTES: usize = 512;

/// The format version of identity files: since 2 they name the job.
const FILE_VERSION: u32 = 2;

/// The key by which one end proves itself, and the one peer that it accepts. `Debug` shows no secret.
pub struct Identity {
    side: Side,
    job: String,
    key: OwnKey,
    peer: Fingerprint,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("side", &self.side)
            .field("job", &self.job)
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

/// The identities of the two ends of a run, each knowing the other.
#[derive(Debug)]
pub struct IdentityPair {
    /// For the end that has the files.
    pub source: Identity,
    /// For the end that receives them.
    pub sink: Identity,
}

impl IdentityPair {
    /// Makes two fresh key pairs for the job `job` (1 to 512 bytes). An end refuses a peer of another job, even if it
    /// has the right key.
    pub fn generate(job: &str) -> Result<Self, IdentityError> {
        let (source, sink) = (OwnKey::generate()?, OwnKey::generate()?);
        let (source_print, sink_print) = (source.fingerprint(), sink.fingerprint());
        Ok(Self {
            source: Identity::of_key(source, Side::Source, job, sink_print)?,
            sink: Identity::of_key(sink, Side::Sink, job, source_print)?,
        })
    }

    /// Makes two fresh key pairs for a job with a new name: 32 random hexadecimal digits.
    pub fn generate_for_new_job() -> Result<Self, IdentityError> {
        let mut bytes = [0; 16];
        SystemRandom::new().fill(&mut bytes).map_err(|_| IdentityError::Random)?;
        Self::generate(&format!("{:032x}", u128::from_be_bytes(bytes)))
    }

    /// Writes `dir/source` and `dir/sink` with mode 0600, and makes `dir` if it is missing: both files or, on an error,
    /// neither. An existing file is an error, because a key is never overwritten.
    pub fn write(&self, dir: &Path) -> Result<(), IdentityError> {
        fs::create_dir_all(dir).map_err(|source| IdentityError::File { path: dir.into(), source })?;
        let source = dir.join("source");
        self.source.write(&source)?;
        self.sink.write(&dir.join("sink")).inspect_err(|_| {
            // One key without the other is useless, and would be in the way of the next try. The error above is the one
            // to report.
            let _ = fs::remove_file(&source);
        })
    }
}

/// The content of an identity file. The key is borrowed, so that no copy of it stays in memory.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File<'a> {
    version: u32,
    side: Side,
    job: String,
    private_key: &'a str,
    peer: String,
}

fn check_job(job: &str) -> Result<(), IdentityError> {
    match job.len() {
        1..=MAX_JOB_BYTES => Ok(()),
        _ => Err(IdentityError::Malformed("the job's name does not have 1 to 512 bytes")),
    }
}

impl Identity {
    /// Takes the identity of one end of the job `job` (1 to 512 bytes), which accepts only the peer with this key.
    pub fn of_key(key: OwnKey, side: Side, job: &str, peer: Fingerprint) -> Result<Self, IdentityError> {
        check_job(job)?;
        Ok(Self { side, job: job.into(), key, peer })
    }

    /// Reads an identity from a file that no other user may use. A file of this user may have permission bits for its
    /// owner only. A Kubernetes Secret is mounted as root's, for a group that this process is in (the pod's `fsGroup`):
    /// bits for the group are accepted on a file of another user, and on one of root if this process is root and in the
    /// group.
    pub fn read(path: &Path) -> Result<Self, IdentityError> {
        let read = read_private(path).and_then(|text| text.parse());
        read.map_err(|error: IdentityError| error.in_file(path))
    }

    /// Returns the file's text, which contains the private key.
    pub fn to_text(&self) -> Zeroizing<String> {
        let private_key = Zeroizing::new(BASE64.encode(self.key.pkcs8()));
        let (job, peer) = (self.job.clone(), self.peer.to_string());
        let file = File { version: FILE_VERSION, side: self.side, job, private_key: &private_key, peer };
        // The text always fits: the longest name of a job takes 3 KiB once it is escaped.
        let mut text = Zeroizing::new(Vec::with_capacity(MAX_FILE_BYTES));
        let written = serde_json::to_writer(&mut *text, &file).map_err(io::Error::from);
        let written = written.and_then(|()| text.write_all(b"\n"));
        let text = written.ok().and_then(|()| String::from_utf8(std::mem::take(&mut *text)).ok());
        Zeroizing::new(text.unwrap_or_default())
    }

    /// Returns the job that both ends of a link have to belong to.
    pub fn job(&self) -> &str {
        &self.job
    }

    /// Returns the end that this identity is for.
    pub fn side(&self) -> Side {
        self.side
    }

    /// Returns the fingerprint of the only key that the other end may have.
    pub fn peer(&self) -> Fingerprint {
        self.peer
    }

    /// Returns the private key, PKCS #8 in DER.
    pub fn pkcs8(&self) -> &[u8] {
        self.key.pkcs8()
    }

    fn write(&self, path: &Path) -> Result<(), IdentityError> {
        let written = write_private(path, self.to_text().as_bytes(), KeyOwner::Writer);
        written.map_err(|source| IdentityError::File { path: path.into(), source })
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The parser's own message could quote the key, so it is dropped.
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        const FORM: IdentityError = IdentityError::Malformed("not its JSON form");
        let Version { version } = serde_json::from_str(text).map_err(|_| FORM)?;
        if version != FILE_VERSION {
            return Err(IdentityError::Malformed(
                "it has a version that this program does not know: make new keys for both ends",
            ));
        }
        let file: File<'_> = serde_json::from_str(text).map_err(|_| FORM)?;
        check_job(&file.job)?;
        let key = OwnKey::of_base64(file.private_key)?;
        let peer = file.peer.parse();
        let peer =
            peer.map_err(|_| IdentityError::Malformed("the peer's fingerprint is not 64 hex digits"))?;
        Ok(Self { side: file.side, job: file.job, key, peer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_end_knows_the_other() {
        let pair = IdentityPair::generate("job").unwrap();
        assert_eq!(pair.source.peer(), pair.sink.key.fingerprint());
        assert_eq!(pair.sink.peer(), pair.source.key.fingerprint());
    }

    #[test]
    fn an_identity_survives_its_text() {
        let identity = IdentityPair::generate("job").unwrap().sink;
        let again: Identity = identity.to_text().parse().unwrap();
        assert_eq!(again.pkcs8(), identity.pkcs8());
        assert_eq!(again.peer(), identity.peer());
        assert_eq!(again.side(), Side::Sink);
        assert_eq!(again.job(), "job");
    }

    #[test]
    fn the_buffer_of_a_text_with_a_key_never_grows() {
        let longest = "\u{1}".repeat(MAX_JOB_BYTES);
        let text = IdentityPair::generate(&longest).unwrap().source.to_text();
        assert_eq!(text.capacity(), MAX_FILE_BYTES);
        assert_eq!(text.parse::<Identity>().unwrap().job(), longest);
    }

    #[test]
    fn a_job_has_a_name() {
        for wrong in [String::new(), "x".repeat(MAX_JOB_BYTES + 1)] {
            assert!(IdentityPair::generate(&wrong).is_err());
        }
        let of = || IdentityPair::generate_for_new_job().unwrap().sink.job().to_string();
        assert_ne!(of(), of());
    }

    #[test]
    fn a_broken_key_is_refused_without_being_quoted() {
        let text = IdentityPair::generate("job")
            .unwrap()
            .sink
            .to_text()
            .replace("\"privateKey\":\"", "\"privateKey\":\"QUJD");
        let error = text.parse::<Identity>().unwrap_err().to_string();
        assert!(!error.contains("QUJD"), "{error}");
    }

    #[test]
    fn both_files_are_written_or_neither() {
        let dir = tempfile::tempdir().unwrap();
        let pair = IdentityPair::generate("job").unwrap();
        fs::write(dir.path().join("sink"), "theirs").unwrap();
        assert!(pair.write(dir.path()).is_err());
        assert!(!dir.path().join("source").exists());
        assert_eq!(fs::read_to_string(dir.path().join("sink")).unwrap(), "theirs");
        fs::remove_file(dir.path().join("sink")).unwrap();
        pair.write(dir.path()).unwrap();
        assert!(dir.path().join("source").exists() && dir.path().join("sink").exists());
    }
}
