//! An endpoints file that changes under a running gateway.

use std::{fs, io, path::Path, sync::Arc};

use discovery::{FileOptions, Options};
use harness::{Engine, Front, Gateway, chat, fleet, get, post, until};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

const CHAT: &str = "/v1/chat/completions";

/// What was logged, for all to read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Keeps what this thread logs while the guard lives.
    fn keep(&self) -> tracing::subscriber::DefaultGuard {
        let log = self.clone();
        let writer = move || log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(writer).with_ansi(false).finish();
        tracing::subscriber::set_default(subscriber)
    }

    async fn until_says(&self, what: &str) {
        until(&format!("log of `{what}`"), async || self.text().contains(what).then_some(())).await;
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn entry(engine: &Engine) -> String {
    let endpoint = engine.endpoint();
    let (name, address) = (endpoint.id.name(), &endpoint.address);
    format!("- {{name: {name}, address: {}, port: \"{}\"}}\n", address.host(), address.port())
}

/// Replaces the file at `path` as a careful writer does: a new file, then a rename.
fn rewrite(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// Sends requests, each with a prompt of its own, until one of them is served by `pod`.
async fn until_served_by(gateway: &Gateway, pod: &str) {
    let mut number = 0;
    until(&format!("an answer of {pod}"), async || {
        number += 1;
        let body = chat(&format!("question {number}"), 2).to_string();
        let answer = post(&gateway.address, CHAT, body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        (answer.header("x-inference-pod") == pod).then_some(())
    })
    .await;
}

async fn until_health(gateway: &Gateway, status: u16) {
    until(&format!("health {status}"), async || {
        (get(&gateway.address, "/health").await.status == status).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_bad_entry_is_named_while_the_rest_serves_and_a_new_one_gets_requests() {
    let log = Log::default();
    let _kept = log.keep();
    let engines = fleet(&["H100", "L40S"]).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("endpoints.yaml");
    let bad = "- {name: broken, address: 'no host!', port: \"8000\"}\n";
    fs::write(&path, format!("endpoints:\n{}{bad}", entry(&engines[0]))).unwrap();
    let options = Options::File(FileOptions { path: path.clone(), watch: true });
    let discovery = discovery::start(&options, &CancellationToken::new()).unwrap();
    let front = Front::start([]);
    front.follow(&discovery);
    let gateway = Gateway::start(front).await;

    let said = log.text();
    assert!(said.contains("endpoints.yaml:3:") && said.contains("broken"), "{said}");
    assert_eq!(get(&gateway.address, "/health").await.json()["endpoints"], 1);
    until_served_by(&gateway, "e0").await;

    let both = format!("endpoints:\n{}{}", entry(&engines[0]), entry(&engines[1]));
    rewrite(&path, &both);
    until_served_by(&gateway, "e1").await;

    // A file that is not usable as a whole changes nothing.
    rewrite(&path, "endpoints: [");
    log.until_says("endpoints stay as they are").await;
    assert_eq!(get(&gateway.address, "/health").await.json()["endpoints"], 2);
    until_served_by(&gateway, "e0").await;

    // An empty list is meant.
    rewrite(&path, "endpoints: []\n");
    until_health(&gateway, 503).await;
    let answer = post(&gateway.address, CHAT, chat("anyone?", 2).to_string()).await;
    assert_eq!(answer.status, 503, "{}", answer.text());

    rewrite(&path, &both);
    until_health(&gateway, 200).await;
    until_served_by(&gateway, "e1").await;
}
