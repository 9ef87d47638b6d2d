//! Tests the krew manifest that `config/krew` prints for archives of `make dist`.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Output},
};

use serde::Deserialize;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A plugin, with the fields that krew knows of `krew.googlecontainertools.github.com/v1alpha2`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Plugin {
    api_version: String,
    kind: String,
    metadata: BTreeMap<String, String>,
    spec: PluginSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PluginSpec {
    version: String,
    homepage: String,
    short_description: String,
    description: String,
    platforms: Vec<Platform>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Platform {
    selector: Selector,
    uri: String,
    sha256: String,
    bin: String,
    files: Vec<FileOperation>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Selector {
    match_labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileOperation {
    from: String,
    to: String,
}

/// Runs config/krew on archives of those names, each of which contains its own name.
fn krew(archives: &[String]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    for name in archives {
        fs::write(folder.path().join(name), name).unwrap();
    }
    let script = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("../config/krew");
    let archives = archives.iter().map(|name| folder.path().join(name));
    Command::new(script).args(archives).output().unwrap()
}

fn archive(processor: &str) -> String {
    format!("volferry-{VERSION}-{processor}-unknown-linux-gnu.tar.gz")
}

#[test]
fn the_manifest_has_the_fields_of_krew_and_the_sum_of_each_archive() {
    let archives = ["x86_64", "aarch64"].map(archive);
    let output = krew(&archives);
    assert!(output.status.success(), "{output:?}");
    let plugin: Plugin = serde_saphyr::from_str(&String::from_utf8(output.stdout).unwrap()).unwrap();
    assert_eq!(plugin.api_version, "krew.googlecontainertools.github.com/v1alpha2");
    assert_eq!((plugin.kind.as_str(), plugin.metadata["name"].as_str()), ("Plugin", "volferry"));
    let spec = plugin.spec;
    assert_eq!((spec.version, spec.homepage.as_str()), (format!("v{VERSION}"), env!("CARGO_PKG_REPOSITORY")));
    assert!(spec.short_description.len() <= 50 && spec.description.lines().count() > 1);
    let architectures: Vec<_> =
        spec.platforms.iter().map(|it| it.selector.match_labels["arch"].as_str()).collect();
    assert_eq!(architectures, ["amd64", "arm64"]);
    for (platform, archive) in spec.platforms.iter().zip(&archives) {
        assert_eq!(platform.selector.match_labels["os"], "linux");
        assert!(
            platform.uri.ends_with(&format!("/releases/download/v{VERSION}/{archive}")),
            "{}",
            platform.uri
        );
        assert_eq!(platform.sha256, sum_of(archive));
        assert_eq!((platform.bin.as_str(), platform.files[0].to.as_str()), ("kubectl-volferry", "."));
        let folder = archive.strip_suffix(".tar.gz").unwrap();
        assert_eq!(platform.files[0].from, format!("{folder}/kubectl-volferry"));
    }
}

#[test]
fn an_archive_of_another_version_is_refused() {
    let output = krew(&["volferry-0.0.0-x86_64-unknown-linux-gnu.tar.gz".into()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "{output:?}");
}

/// Returns the SHA-256 sum of a text, calculated by another program than the script's.
fn sum_of(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("text");
    fs::write(&file, text).unwrap();
    let output = Command::new("openssl").args(["dgst", "-sha256", "-r"]).arg(file).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_whitespace().next().unwrap().into()
}
