//! A real Envoy, with the configuration that `deploy/envoy` gives to users.

use std::{
    fs::{self, File},
    net::TcpListener,
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use crate::{
    client::get,
    front::Epp,
    tools::{Tool, in_checkout, tool},
    wait::until,
};

/// The configuration, with the ports that users have.
const CONFIG: &str = "deploy/envoy/standalone.yaml";

/// A running Envoy. Dropping it ends it.
#[derive(Debug)]
pub struct Envoy {
    /// `host:port` that clients come to.
    pub address: String,
    admin: String,
    process: Child,
    folder: TempDir,
}

impl Envoy {
    /// Starts Envoy before `epp` and waits until it serves; `None` where there is none on this
    /// machine and none is required.
    ///
    /// The thread that calls this must outlive it: the packaged build ends with its parent thread.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start(epp: &Epp) -> Option<Self> {
        let program = tool(Tool::Envoy)?;
        let [clients, admin] = free_ports();
        let config = fs::read_to_string(in_checkout(CONFIG)).unwrap();
        let config = with_port(&config, 8081, clients);
        let config = with_port(&config, 19000, admin);
        let config = with_port(&config, 9002, epp.port);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("envoy.yaml");
        fs::write(&path, config).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let process = Command::new(program)
            .arg("--config-path")
            .arg(&path)
            // Several run at once, and none of them hands over to another.
            .args(["--disable-hot-restart", "--concurrency", "2", "--log-level", "warning"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let address = format!("127.0.0.1:{clients}");
        let mut envoy = Self { address, admin: format!("127.0.0.1:{admin}"), process, folder };
        envoy.ready().await;
        Some(envoy)
    }

    async fn ready(&mut self) {
        until("Envoy is ready", async || {
            if let Some(status) = self.process.try_wait().unwrap() {
                panic!("Envoy ended with {status}: {}", self.log());
            }
            // Nothing listens at first.
            tokio::net::TcpStream::connect(&self.admin).await.ok()?;
            (get(&self.admin, "/ready").await.status == 200).then_some(())
        })
        .await;
    }

    /// What it has logged.
    ///
    /// # Panics
    /// If the log is gone.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // One that has ended already needs no end.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Two ports that were free a moment ago.
fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// `config` with port `from` replaced, which it names exactly once.
fn with_port(config: &str, from: u16, to: u16) -> String {
    let named = format!("port_value: {from} }}");
    assert_eq!(config.matches(&named).count(), 1, "{CONFIG} names port {from} not once");
    config.replace(&named, &format!("port_value: {to} }}"))
}
