//! The namespaces that an operator asks its API server about.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    process::{Child, Command, Stdio},
};

/// An operator that is killed when dropped.
struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the path of the first request of an operator with that value of the variable.
fn first_request(watched: &str) -> String {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let kubeconfig = dir.path().join("kubeconfig");
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}], \
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}], users: [{{name: u, user: {{}}}}]}}"
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_volferry-operator"));
    command.args(["controller", "--image=i", "--leader-elect=false", "--listen=127.0.0.1:0"]);
    command.env("KUBECONFIG", &kubeconfig).env("VOLFERRY_WATCH_NAMESPACES", watched);
    let _operator = Operator(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let (mut connection, _) = server.accept().unwrap();
    let mut line = String::new();
    BufReader::new(&connection).read_line(&mut line).unwrap();
    let _ = connection.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n");
    line.split(' ').nth(1).unwrap().to_string()
}

#[test]
fn an_empty_list_of_namespaces_is_all_of_them_and_any_other_is_what_it_names() {
    for (watched, path) in [
        ("", "/apis/volferry.dev/v1alpha1/syncjobs?"),
        ("team", "/apis/volferry.dev/v1alpha1/namespaces/team/syncjobs?"),
    ] {
        let asked = first_request(watched);
        assert!(asked.starts_with(path), "{watched:?}: {asked}");
    }
}
