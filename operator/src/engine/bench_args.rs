//! Builds the command lines of `volferry bench`, for both ends in one process or for each of two. Its folders are the
//! whole volumes, in each of which the benchmark creates a folder of its own.

use contract::{RunParams, Side};

use super::{EndArgs, Folder};
use crate::api::Benchmark;

/// Returns the arguments of the one process for both ends.
pub fn local_args(
    [source, destination]: [&Folder; 2],
    report: &str,
    run: &str,
    benchmark: &Benchmark,
) -> Vec<String> {
    let folders = vec!["bench".to_string(), source.volume.clone(), destination.volume.clone()];
    folders.into_iter().chain(asked(report, run, benchmark)).collect()
}

/// Returns the arguments of one end. The source dials the address that it is told, for `timeout_s` seconds; the sink's
/// lack the address to listen on ([`listen_arg`](super::listen_arg)).
pub fn end_args(
    side: Side,
    end: &EndArgs,
    timeout_s: u64,
    params: &RunParams,
    benchmark: &Benchmark,
) -> Vec<String> {
    let mut args = vec!["bench".to_string(), end.folder.volume.clone(), format!("--end={side}")];
    args.push(format!("--exchange={}", end.job));
    if side == Side::Source {
        args.push(format!("--connect-timeout={timeout_s}"));
        args.extend(params.bandwidth_limit.map(|limit| format!("--bandwidth-limit={limit}")));
    }
    args.extend(asked(&end.report, &params.run, benchmark));
    args
}

/// Returns the flags of the benchmark. The tree is passed in full, so that both ends use the same one even if their
/// versions differ.
fn asked(report: &str, run: &str, benchmark: &Benchmark) -> [String; 4] {
    let tree = serde_json::to_string(&benchmark.whole_tree()).unwrap_or_default();
    [
        format!("--tree={tree}"),
        format!("--rounds={}", benchmark.rounds),
        format!("--report={report}"),
        format!("--run={run}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::BenchmarkTree;

    #[test]
    fn both_ends_are_told_of_the_same_tree_and_only_the_source_of_the_limit() {
        let folder = Folder { volume: "/volume".into(), path: "/below".into() };
        let end = EndArgs { folder: folder.clone(), job: "j".into(), report: "/r".into() };
        let benchmark = Benchmark { tree: Some(BenchmarkTree::Large), rounds: 2, ..Benchmark::default() };
        let params = RunParams { run: "b-1".into(), bandwidth_limit: Some(1000), ..RunParams::default() };
        let tree = r#"--tree={"files":[{"count":1,"bytes":268435456,"folders":1}],"changePercent":5}"#;
        let common = format!("{tree} --rounds=2 --report=/r --run=b-1");
        let [source, sink] =
            [Side::Source, Side::Sink].map(|side| end_args(side, &end, 9, &params, &benchmark));
        assert_eq!(
            source.join(" "),
            format!(
                "bench /volume --end=source --exchange=j --connect-timeout=9 --bandwidth-limit=1000 {common}"
            )
        );
        assert_eq!(sink.join(" "), format!("bench /volume --end=sink --exchange=j {common}"));
        let local = local_args([&folder, &folder], "/r", "b-1", &benchmark);
        assert_eq!(local.join(" "), format!("bench /volume /volume {common}"));
    }
}
