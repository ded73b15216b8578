//! Processes beside the benchmark's own, so that each one's CPU can be told apart.

use std::{
    env,
    io::{BufRead, BufReader},
    process::{self, Command, Stdio},
};

/// Marks the arguments of a process that a benchmark has started from itself.
const MARK: &str = "--as";

/// What a benchmark's own program is to be in a process started with [`Child::of_self`].
#[derive(Clone, Debug)]
pub struct Role {
    /// Its name.
    pub name: String,
    /// Its arguments.
    pub arguments: Vec<String>,
}

/// The role of this process; `None` in the benchmark itself.
pub fn role() -> Option<Role> {
    let mut arguments = env::args().skip_while(|argument| argument != MARK).skip(1);
    Some(Role { name: arguments.next()?, arguments: arguments.collect() })
}

/// A process that ends when this is dropped.
#[derive(Debug)]
pub struct Child(process::Child);

impl Child {
    /// Starts this very program as `role`, and waits for the line that it prints when it is ready.
    pub fn of_self(role: &str, arguments: &[String]) -> (Self, String) {
        let mut command = Command::new(env::current_exe().unwrap());
        let child = command.arg(MARK).arg(role).args(arguments).stdout(Stdio::piped()).spawn();
        let mut child = Self(child.unwrap());
        let mut line = String::new();
        let stdout = child.0.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "`{role}` ended before it was ready");
        (child, line.trim().to_owned())
    }

    /// Starts `command`, whose output is not read.
    pub fn of(command: &mut Command) -> Self {
        Self(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
