//! The page of `volferry report --html` in a real browser: chromium without a window, controlled by its DevTools
//! protocol.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::generate::volferry;

/// The script that returns the page's content as the browser shows it.
const LOOK: &str = "(() => {
  const all = (query) => [...document.querySelectorAll(query)];
  const style = getComputedStyle(document.body);
  const light = (colour) => colour.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0);
  return {
    charts: all('svg').length,
    bars: all('svg a').length,
    visible: all('svg a').filter((bar) => bar.getBoundingClientRect().height > 0).length,
    colours: new Set(all('svg rect').map((part) => getComputedStyle(part).fill)).size,
    runs: all('tr[id]').length,
    steps: all('table.bench tbody tr').length,
    empty: all('td:first-child').filter((cell) => !cell.textContent).length,
    paper: light(style.backgroundColor),
    ink: light(style.color),
  };
})()";

/// A browser with one page, whose messages come by a pipe. Stopped when dropped.
struct Browser {
    process: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    calls: u64,
    /// The events that the browser reported of the page.
    events: Vec<Value>,
    _profile: TempDir,
}

impl Browser {
    /// Starts the browser. Returns `None` and prints the reason where there is no chromium, unless the environment
    /// requires it.
    fn start() -> Option<Self> {
        if Command::new("chromium").arg("--version").output().is_err() {
            eprintln!("skipped: there is no chromium; `.ci/tools browser` installs it");
            assert_ne!(env::var("VOLFERRY_BROWSER").as_deref(), Ok("required"), "a browser is required");
            return None;
        }
        let profile = tempfile::tempdir().unwrap();
        // The browser reads commands from descriptor 3, and answers on 4.
        let pipes = "exec timeout 300 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage \
                     --no-first-run --disable-background-networking --disable-component-update --disable-sync \
                     --remote-debugging-pipe \"--user-data-dir=$0\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";
        let mut process = Command::new("sh")
            .args(["-c", pipes])
            .arg(profile.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        let mut browser =
            Self { process, to, from, session: None, calls: 0, events: Vec::new(), _profile: profile };
        let page = browser.call("Target.createTarget", json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({"targetId": page, "flatten": true}));
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Network", "Log", "Runtime"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Calls a method and returns its result. Events that come meanwhile are kept.
    #[track_caller]
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method});
        message["params"] = params;
        if let Some(session) = &self.session {
            message["sessionId"] = session.clone().into();
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        loop {
            let answer = self.next();
            if answer["id"] == self.calls {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    #[track_caller]
    fn next(&mut self) -> Value {
        let mut message = Vec::new();
        self.from.read_until(0, &mut message).unwrap();
        assert_eq!(message.pop(), Some(0), "the browser has ended");
        serde_json::from_slice(&message).unwrap()
    }

    /// Opens a page for readers of light or dark colours, and returns once it is loaded.
    fn open(&mut self, page: &Path, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"media": "", "features": features}));
        self.events.clear();
        self.call("Page.navigate", json!({"url": format!("file://{}", page.display())}));
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.next();
            self.events.push(event);
        }
    }

    #[track_caller]
    fn evaluate(&mut self, script: &str) -> Value {
        let result = self.call("Runtime.evaluate", json!({"expression": script, "returnByValue": true}));
        assert!(result["exceptionDetails"].is_null(), "{result}");
        result["result"]["value"].clone()
    }

    fn press_tab(&mut self) {
        for kind in ["keyDown", "keyUp"] {
            let key = json!({"type": kind, "key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9});
            self.call("Input.dispatchKeyEvent", key);
        }
    }

    /// Checks that the page reported no error and requested nothing but itself.
    #[track_caller]
    fn assert_quiet(&self, page: &Path) {
        let own = format!("file://{}", page.display());
        for event in &self.events {
            match event["method"].as_str().unwrap_or_default() {
                "Network.requestWillBeSent" => assert_eq!(event["params"]["request"]["url"], own.as_str()),
                "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded" => {
                    panic!("{event}")
                }
                _ => {}
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.to.write_all(b"{\"id\": 0, \"method\": \"Browser.close\"}\0");
        let _ = self.process.wait();
    }
}

/// Writes the page of a bench of real volumes; returns its path.
fn write_page(dir: &Path) -> std::path::PathBuf {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_string();
    ["source", "destination"].iter().for_each(|name| fs::create_dir(path(name)).unwrap());
    fs::write(path("tree"), "files: [{count: 50, bytes: 3000}]").unwrap();
    let [source, destination, tree, result, page] =
        ["source", "destination", "tree", "bench.json", "page.html"].map(path);
    volferry(&["bench", &source, &destination, "--tree", &tree, "--rounds", "4", "--report", &result]);
    volferry(&["report", &result, "--html", &page]);
    page.into()
}

#[test]
fn a_browser_shows_the_charts_and_tables_in_light_and_in_dark_and_asks_for_nothing() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = write_page(dir.path());
    for scheme in ["light", "dark"] {
        browser.open(&page, scheme);
        let seen = browser.evaluate(LOOK);
        let number = |name: &str| seen[name].as_f64().unwrap();
        assert_eq!(
            ["charts", "bars", "runs", "steps", "empty"].map(number),
            [7.0, 28.0, 12.0, 3.0, 0.0],
            "{seen}"
        );
        assert!(number("visible") >= 12.0 && number("colours") >= 5.0, "{seen}");
        assert_eq!(number("paper") > number("ink"), scheme == "light", "{seen}");
        assert!((number("paper") - number("ink")).abs() > 400.0, "{scheme} has too little contrast: {seen}");
        browser.assert_quiet(&page);
    }
    browser.call("Emulation.setEmulatedMedia", json!({"media": "print"}));
    assert_eq!(browser.evaluate(LOOK)["paper"], 3 * 255, "a printed page is white");
}

#[test]
fn the_page_fits_on_a_phone() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = write_page(dir.path());
    let phone = json!({"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": true});
    browser.call("Emulation.setDeviceMetricsOverride", phone);
    browser.open(&page, "light");
    let wide = "[document.documentElement.scrollWidth, ...[...document.querySelectorAll('h1, h2, section, svg, p, ul')]
        .map((it) => Math.ceil(it.getBoundingClientRect().right))].filter((right) => right > 390)";
    assert_eq!(browser.evaluate(wide), json!([]));
}

#[test]
fn the_bars_of_a_page_can_be_reached_by_the_keyboard() {
    let Some(mut browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let page = write_page(dir.path());
    browser.open(&page, "light");
    let mut reached = Vec::new();
    for _ in 0..4 {
        browser.press_tab();
        let focus = "document.activeElement.getAttribute('aria-label') || document.activeElement.className";
        reached.push(browser.evaluate(focus).as_str().unwrap_or_default().to_owned());
    }
    assert_eq!(reached[0], "wide", "the table of the bench scrolls by the keyboard: {reached:?}");
    assert!(reached[1..].iter().all(|label| label.contains(": ")), "each bar tells of its run: {reached:?}");
    browser.assert_quiet(&page);
}
