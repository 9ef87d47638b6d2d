//! A store that answers something else than it was asked: nothing of it arrives, and the program says so and ends.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
    thread,
};

use testkit::s3_server::ACCESS_KEY;

use crate::{
    bucket::{command, ok, run, text},
    bucket_kills::{copy_files, with_snapshots},
    common::{
        object_storage::{Bucket, Fault},
        process::program,
        rng::Rng,
    },
    copy::digests,
    volume::{Said, Volume},
};

const URL: &str = "s3://snapshots/of/web";

/// Answers that no request of the program expects, the connection closed after each.
const ODD: [&str; 11] = [
    "",
    "\0\x01\x02 no HTTP at all\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 20\r\nConnection: close\r\n\r\n<html>Sign in</html>",
    // Longer than anything, and than a machine's memory.
    "HTTP/1.1 200 OK\r\nContent-Length: 9000000000000000000\r\nLast-Modified: Thu, 26 Nov 2026 12:00:00 GMT\r\n\
     ETag: \"1\"\r\nConnection: close\r\n\r\nabc",
    "HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\nContent-Range: bytes 7-9/10\r\n\
     Last-Modified: Thu, 26 Nov 2026 12:00:00 GMT\r\nETag: \"1\"\r\nConnection: close\r\n\r\nabc",
    "HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\nContent-Range: bytes 9-7/18446744073709551615\r\n\
     Last-Modified: Thu, 26 Nov 2026 12:00:00 GMT\r\nETag: \"1\"\r\nConnection: close\r\n\r\nabc",
    "HTTP/1.1 301 Moved\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
    // A list with names that are none, and one that leads out of the folder.
    "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: 233\r\nConnection: close\r\n\r\n\
     <ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>of/web/lists/../../../etc/passwd</Key>\
     <Size>18446744073709551615</Size><LastModified>2026-11-26T12:00:00.000Z</LastModified><ETag>1</ETag></Contents>\
     </ListBucketResult>",
];

/// Returns what the program says when the request of this number is answered wrongly.
fn wrongly(bucket: &Bucket, at: usize, fault: Fault, mut command: std::process::Command) -> Said {
    let nth = AtomicUsize::new(0);
    // Those that are made again are answered rightly, as by another server of the same name. What is answered to a
    // change can only be believed.
    bucket.fail(move |request| {
        let is_it = nth.fetch_add(1, SeqCst) == at && request.method == "GET";
        if is_it { fault } else { Fault::None }
    });
    let said = Said::from(command.output().unwrap());
    bucket.fail(|_| Fault::None);
    assert!(said.code.is_some_and(|code| code < 100), "request {at}, {fault:?}: {said:?}");
    assert!(said.code == Some(0) || said.stderr.contains("error: "), "request {at}, {fault:?}: {said:?}");
    said
}

/// Returns all wrong answers, and right ones with a wrong bit.
fn faults() -> Vec<Fault> {
    ODD.map(Fault::Answer).into_iter().chain([0, 250, 501, 998].map(Fault::FlipAnswer)).collect()
}

#[test]
fn what_comes_back_is_right_or_named_whatever_the_store_answers() {
    let (bucket, from) = (Bucket::new(), with_snapshots(2));
    ok(&bucket, &["copy", "--all", text(&from), URL]);
    bucket.seen();
    ok(&bucket, &["copy", "--all", URL, text(&Volume::new())]);
    let (requests, mut refused) = (bucket.seen().len(), 0);
    for at in 0..requests {
        for fault in faults() {
            let to = Volume::new();
            let said = wrongly(&bucket, at, fault, command(&bucket, &["copy", "--all", URL, text(&to)]));
            refused += usize::from(said.code != Some(0));
            if to.path().join(".volferry").exists() {
                let known = digests(&from);
                assert!(digests(&to).iter().all(|(id, tree)| known.get(id) == Some(tree)), "{said:?}");
                to.run("verify", &["--no-heal"]).assert_undamaged();
            }
        }
    }
    assert!(refused > requests, "{refused} answers to {requests} requests were refused");
}

/// Runs a command whose every request is answered so, and returns what it says, which has to name the server.
#[track_caller]
fn answered(answer: &'static str, args: &[&str]) -> Said {
    let bucket = Bucket::new();
    let mut command = command(&bucket, args);
    bucket.fail(move |_| Fault::Answer(answer));
    let said = Said::from(command.output().unwrap());
    assert!(said.stderr.contains(&format!(" at http://{}", bucket.address())), "{said:?}");
    said
}

#[test]
fn a_refusal_names_the_server_and_the_variable_to_look_at() {
    let error = |code: &str| format!("<Error><Code>{code}</Code></Error>");
    let answers = [
        ("404 Not Found", error("XAdminUserNotFound"), "AWS_ACCESS_KEY_ID"),
        ("400 Bad Request", error("AuthorizationHeaderMalformed"), "AWS_REGION"),
        ("400 Bad Request", error("InvalidToken"), "AWS_SESSION_TOKEN"),
        ("400 Bad Request", error("InvalidBucketName"), "3 to 63"),
        // A server of something else.
        ("404 Not Found", "no\n".into(), "AWS_ENDPOINT_URL"),
        ("301 Moved", String::new(), "AWS_REGION"),
    ];
    for (status, body, variable) in answers {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close", body.len());
        let answer: &str = format!("{head}\r\n\r\n{body}").leak();
        let said = answered(answer, &["list", URL]);
        assert_eq!(said.code, Some(1), "{answer}: {said:?}");
        let hint = said.stderr.lines().find(|line| line.starts_with("hint: "));
        assert!(hint.is_some_and(|hint| hint.contains(variable)), "{answer}: {said:?}");
    }
}

#[test]
fn what_is_wrong_with_a_variable_is_said_before_any_request() {
    let (bucket, from) = (Bucket::new(), with_snapshots(1));
    bucket.fail(|_| panic!("a request"));
    let address = bucket.address().to_string();
    let plain = format!("http://{address}");
    let wrong: [(&str, &str, &str); 6] = [
        ("AWS_ENDPOINT_URL", "s3.example.org", "https://HOST"),
        ("AWS_ENDPOINT_URL", &address, "https://HOST"),
        ("AWS_ENDPOINT_URL_S3", "foo", "https://HOST"),
        ("AWS_ALLOW_HTTP", "", "AWS_ALLOW_HTTP=true"),
        ("AWS_ACCESS_KEY_ID", "one\ntwo", "line break"),
        ("AWS_SESSION_TOKEN", "one\ntwo", "line break"),
    ];
    for (variable, value, words) in wrong {
        let list = command(&bucket, &["list", URL]);
        let copy = command(&bucket, &["copy", text(&from), URL, "--all"]);
        let mut sync = Command::new(program());
        sync.args(["sync", text(&from), URL]);
        for (name, value) in list.get_envs() {
            sync.env(name, value.unwrap());
        }
        for mut command in [list, copy, sync] {
            let said = Said::from(command.env(variable, value).output().unwrap());
            assert_eq!(said.code, Some(2), "{variable}={value}: {said:?}");
            let name = if value.is_empty() { "AWS_ENDPOINT_URL" } else { variable };
            assert!(
                said.stderr.contains(name) && said.stderr.contains(words),
                "{variable}={value}: {said:?}"
            );
        }
    }
    bucket.fail(|_| Fault::None);
    // Files of variables have empty ones, and line breaks at the end.
    let mut list = command(&bucket, &["list", URL]);
    list.env("AWS_ENDPOINT_URL", format!(" {plain}/\n")).env("AWS_ENDPOINT_URL_S3", "");
    list.env("AWS_ACCESS_KEY_ID", format!("{ACCESS_KEY}\n")).env("AWS_SESSION_TOKEN", "\n");
    let said = Said::from(list.output().unwrap());
    assert!(said.code == Some(1) && said.stderr.contains(" has no snapshots"), "{said:?}");
}

#[test]
fn a_server_without_tls_is_named_with_its_address() {
    let (bucket, listener) = (Bucket::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    let https = format!("https://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let _ = (&client).read(&mut [0; 1024]);
            let _ = (&client).write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let said = Said::from(command(&bucket, &["list", URL]).env("AWS_ENDPOINT_URL", &https).output().unwrap())
        .exits(5);
    assert!(said.stderr.contains(&https) && said.stderr.contains("hint: write http:// in"), "{said:?}");
}

#[test]
fn a_prune_removes_nothing_that_is_needed_whatever_the_store_answers() {
    let (bucket, from, mut rng) = (Bucket::new(), with_snapshots(3), Rng::new(8));
    ok(&bucket, &["copy", "--all", text(&from), "s3://snapshots/before"]);
    let newest = from.list().last().unwrap()["id"].as_str().unwrap().to_owned();
    let prune = |url: &str| command(&bucket, &["prune", "--keep-last", "1", url]);
    copy_files(&bucket.path("before"), &bucket.path("usual"));
    bucket.seen();
    assert!(prune("s3://snapshots/usual").output().unwrap().status.success());
    for (at, request) in bucket.seen().into_iter().enumerate() {
        let faults = faults();
        for _ in 0..if request.method == "GET" { 6 } else { 0 } {
            let fault = faults[rng.below(faults.len() as u64) as usize];
            let url = format!("s3://snapshots/of{at}");
            copy_files(&bucket.path("before"), &bucket.path(&format!("of{at}")));
            wrongly(&bucket, at, fault, prune(&url));
            let verified = run(&bucket, &["verify", &url]);
            assert_eq!(verified.code, Some(0), "request {at}, {fault:?}: {verified:?}");
            let listed = ok(&bucket, &["list", "--json", &url]).stdout;
            assert!(listed.contains(&newest), "request {at}, {fault:?}: {listed}");
            std::fs::remove_dir_all(bucket.path(&format!("of{at}"))).unwrap();
        }
    }
}

#[test]
fn an_answer_that_does_not_end_is_not_read_to_its_end() {
    let endless = "a".repeat(9 << 20);
    let of = |status: &str, len: usize, body: &str| -> &'static str {
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\nConnection: close");
        let object = "Last-Modified: Thu, 26 Nov 2026 12:00:00 GMT\r\nETag: \"1\"";
        format!("{head}\r\n{object}\r\n\r\n{body}").leak()
    };
    let said = answered(of("403 Forbidden", endless.len(), &endless), &["list", URL]);
    assert!(said.stderr.contains("longer than any list or error"), "{said:?}");

    let (bucket, from) = (Bucket::new(), with_snapshots(1));
    ok(&bucket, &["copy", "--all", text(&from), URL]);
    let long = of("200 OK\r\nTransfer-Encoding: chunked", 3, "9\r\nabcdefghi\r\n0\r\n\r\n");
    let list = of("200 OK", endless.len(), &endless);
    for (is_list, answer, what) in
        [(false, long, "longer than the store says"), (true, list, "longer than any list or error")]
    {
        bucket.seen();
        ok(&bucket, &["copy", "--all", URL, text(&Volume::new())]);
        bucket.fail(move |request| {
            let is_it = request.method == "GET" && request.path.contains("list-type") == is_list;
            if is_it { Fault::Answer(answer) } else { Fault::None }
        });
        let said = run(&bucket, &["copy", "--all", URL, text(&Volume::new())]);
        bucket.fail(|_| Fault::None);
        assert!(said.stderr.contains(what), "{what}: {said:?}");
    }
}
