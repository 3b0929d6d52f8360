//! A headless Chromium, controlled by its DevTools protocol over two pipes.
//!
//! `--remote-debugging-pipe`: JSON messages that end with a zero byte, requests on descriptor 3,
//! replies and events on 4. The pipes have names until a shell has opened them, so no port is
//! opened.

use crate::harness::Scratch;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Maximum time for a reply on a loaded computer before the browser counts as hung.
const REPLY_TIMEOUT: Duration = Duration::from_secs(90);
const NAMES: [&str; 6] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "chrome-headless-shell",
];

/// Finds a Chromium: `TALEA_BROWSER` names one; `required` makes it an error that there is none on
/// the PATH.
pub(super) fn find() -> Option<PathBuf> {
    let wanted = std::env::var_os("TALEA_BROWSER").filter(|value| !value.is_empty());
    if let Some(path) = wanted.as_ref().filter(|value| *value != "required").map(PathBuf::from) {
        assert!(path.is_file(), "TALEA_BROWSER: there is no {}", path.display());
        return Some(path);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .flat_map(|folder| NAMES.map(|name| folder.join(name)))
        .find(|candidate| candidate.is_file());
    assert!(
        found.is_some() || wanted.is_none(),
        "TALEA_BROWSER=required, but none of {NAMES:?} is on the PATH"
    );
    found
}

/// A page in its own browser.
pub(super) struct Page {
    browser: Child,
    requests: File,
    answers: Receiver<Value>,
    session: Option<String>,
    number: u64,
    /// Unsolicited events.
    events: VecDeque<Value>,
}

fn pipe(scratch: &Scratch, name: &str) -> (PathBuf, File) {
    let path = scratch.path().join(name);
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0)
        .expect("a pipe");
    // Opened for both directions, because opening one end would block.
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("its end");
    (path, file)
}

impl Page {
    /// Starts a browser with an empty page.
    pub(super) fn new(browser: &Path, scratch: &Scratch) -> Page {
        let (requests_path, requests) = pipe(scratch, "requests");
        let (answers_path, answers_file) = pipe(scratch, "answers");
        let mut command = Command::new("sh");
        command.args(["-c", "exec \"$0\" \"$@\" 3<requests 4>answers"]).arg(browser);
        command.args([
            "--headless",
            "--remote-debugging-pipe",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ]);
        command.args(["--no-first-run", "--hide-scrollbars", "--disable-background-networking"]);
        command.arg(format!("--user-data-dir={}", scratch.path().join("profile").display()));
        if rustix::process::getuid().is_root() {
            // Its sandbox does not work for root.
            command.arg("--no-sandbox");
        }
        command.current_dir(scratch.path()).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let browser = command.spawn().expect("a shell");
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            let mut reader = BufReader::new(answers_file);
            let mut message = Vec::new();
            while reader.read_until(0, &mut message).is_ok_and(|length| length > 0) {
                message.pop();
                let Ok(value) = serde_json::from_slice(&message) else { return };
                if sender.send(value).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut page =
            Page { browser, requests, answers, session: None, number: 0, events: VecDeque::new() };
        let target = page.ask("Target.createTarget", &json!({ "url": "about:blank" }));
        // The names are no longer needed.
        let _ = (std::fs::remove_file(requests_path), std::fs::remove_file(answers_path));
        let target = json!({ "targetId": target["targetId"], "flatten": true });
        let session = page.ask("Target.attachToTarget", &target);
        page.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.ask(&format!("{domain}.enable"), &json!({}));
        }
        let screen =
            json!({ "width": 1400, "height": 1000, "deviceScaleFactor": 1, "mobile": false });
        page.ask("Emulation.setDeviceMetricsOverride", &screen);
        page
    }

    /// Sends a request and returns its reply; earlier events are kept.
    pub(super) fn ask(&mut self, method: &str, parameters: &Value) -> Value {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.requests.write_all(&bytes).expect("the browser listens");
        let until = Instant::now() + REPLY_TIMEOUT;
        loop {
            let answer = self.next(until).unwrap_or_else(|| panic!("no answer to {method}"));
            if answer["id"] == json!(self.number) {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.events.push_back(answer);
        }
    }

    fn next(&mut self, until: Instant) -> Option<Value> {
        self.answers.recv_timeout(until.saturating_duration_since(Instant::now())).ok()
    }

    /// Loads a file completely.
    pub(super) fn open(&mut self, path: &Path) {
        self.events.clear();
        let mut address = String::from("file://");
        for byte in path.to_str().expect("UTF-8").bytes() {
            if byte.is_ascii_alphanumeric() || b"/-_.".contains(&byte) {
                address.push(char::from(byte));
            } else {
                use std::fmt::Write as _;
                let _ = write!(address, "%{byte:02X}");
            }
        }
        let went = self.ask("Page.navigate", &json!({ "url": address }));
        assert!(went["errorText"].is_null(), "{went}");
        let until = Instant::now() + REPLY_TIMEOUT;
        while !self.events.iter().any(|event| event["method"] == "Page.loadEventFired") {
            let event = self.next(until).expect("the page loads");
            self.events.push_back(event);
        }
    }

    /// Returns the value of an expression in the page.
    pub(super) fn value(&mut self, expression: &str) -> Value {
        let asked =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.ask("Runtime.evaluate", &asked);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until the page is drawn.
    pub(super) fn settled(&mut self) {
        let two = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))";
        self.value(two);
    }

    /// Returns errors of the page, and what it loaded from elsewhere.
    pub(super) fn complaints(&mut self) -> Vec<String> {
        let is_bad = |event: &Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Log.entryAdded") => event["params"]["entry"]["level"] == "error",
            Some("Runtime.consoleAPICalled") => event["params"]["type"] == "error",
            Some("Network.requestWillBeSent") => {
                let address = event["params"]["request"]["url"].as_str().unwrap_or_default();
                !address.starts_with("file://") && !address.starts_with("data:")
            }
            _ => false,
        };
        self.events.iter().filter(|event| is_bad(event)).map(Value::to_string).collect()
    }

    /// Saves a screenshot, if `TALEA_SHOTS` names a folder.
    pub(super) fn shoot(&mut self, name: &str) {
        let Some(folder) = std::env::var_os("TALEA_SHOTS") else { return };
        let shot = self.ask("Page.captureScreenshot", &json!({ "format": "png" }));
        let bytes = unbase64(shot["data"].as_str().expect("a picture"));
        std::fs::write(Path::new(&folder).join(format!("{name}.png")), bytes)
            .expect("the picture is written");
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // A browser has several processes; this one leads their group.
        if let Some(group) = rustix::process::Pid::from_raw(self.browser.id() as i32) {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.browser.wait();
    }
}

pub(super) fn unbase64(text: &str) -> Vec<u8> {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut held, mut bits) = (Vec::new(), 0u32, 0);
    for byte in text.bytes() {
        let Some(digit) = digits.iter().position(|&digit| digit == byte) else { continue };
        held = (held << 6 | digit as u32) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
    }
    bytes
}
