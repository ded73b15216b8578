//! Runs the built binary and talks to it.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc::{self, Receiver},
    time::Duration,
};

/// Longest wait for something that must come.
const PATIENCE: Duration = Duration::from_mins(1);

/// The program with `args`, which reads no settings of whoever runs the tests.
pub(crate) fn slackline<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slackline"));
    command.args(args).env_remove("SLACKLINE_LOG").stdin(Stdio::null());
    command
}

/// What the program did.
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl From<Output> for Done {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// Runs the program to its end.
pub(crate) fn run<'a>(args: impl IntoIterator<Item = &'a str>) -> Done {
    slackline(args).output().unwrap().into()
}

/// A server that the program runs; killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    lines: Receiver<String>,
}

impl Server {
    /// Starts the program with `args`.
    pub(crate) fn start<'a>(args: impl IntoIterator<Item = &'a str>) -> Self {
        let mut child =
            slackline(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                // A test that waits for no more lines has dropped the other end.
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// The next line of its log with `words` in it.
    pub(crate) fn line_with(&self, words: &str) -> String {
        let mut seen = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(words) => return line,
                Ok(line) => seen.push(line),
                Err(error) => panic!("no line with `{words}` ({error}) after {seen:#?}"),
            }
        }
    }

    /// Asks it to stop, and returns how it ended and what it has said since the last line that was asked
    /// for.
    pub(crate) fn terminate_and_read(mut self) -> (ExitStatus, Vec<String>) {
        let status = self.stop();
        (status, self.lines.iter().collect())
    }

    /// Asks it to stop, and returns how it ended.
    pub(crate) fn terminate(mut self) -> ExitStatus {
        self.stop()
    }

    fn stop(&mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.child.wait().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The value of `field` in a line of log.
pub(crate) fn field(line: &str, field: &str) -> String {
    let (_, rest) = line.split_once(&format!("{field}=")).unwrap();
    rest.split_whitespace().next().unwrap().to_owned()
}

/// The answer to `GET path` at `address`, head and body.
pub(crate) fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
