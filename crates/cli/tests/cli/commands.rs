//! Commands that end by themselves: help, lists, and everything that is refused.

use std::{net::TcpListener, process::Stdio};

use crate::program::{run, slackline};

#[test]
fn help_names_every_command() {
    let help = run(["--help"]);
    assert_eq!(help.code, Some(0));
    for command in ["demo", "serve", "epp", "engine", "load", "evaluate"] {
        assert!(help.stdout.contains(&format!("  {command} ")), "{}", help.stdout);
        let own = run([command, "--help"]);
        assert_eq!(own.code, Some(0));
        assert!(own.stdout.contains(&format!("Usage: slackline {command}")), "{}", own.stdout);
    }
}

#[test]
fn help_of_the_picker_says_that_it_is_plaintext() {
    let help = run(["epp", "--help"]).stdout;
    assert!(help.contains("plaintext"), "{help}");
    for flag in ["--grpc-port", "--grpc-health-port", "--metrics-port", "--config-file"] {
        assert!(help.contains(flag), "{help}");
    }
}

#[test]
fn an_unknown_command_is_refused_by_name() {
    let done = run(["rout"]);
    assert_eq!(done.code, Some(2));
    assert!(done.stderr.contains("'rout'"), "{}", done.stderr);
}

#[test]
fn a_flag_with_a_bad_value_is_refused_by_name() {
    for (args, words) in [
        (&["serve", "--listen", "nowhere"][..], "--listen"),
        (&["epp", "--bind", "x"], "--bind"),
        (&["epp", "--grpc-port", "99999"], "--grpc-port"),
        (&["serve", "--policy", "best"], "least-requests"),
        (&["engine", "--gpu", "H100", "--time-scale", "0"], "--time-scale"),
        (&["load", "--target", "x", "--model", "m", "--duration", "5x"], "--duration"),
    ] {
        let done = run(args.iter().copied());
        assert_eq!(done.code, Some(2), "{args:?}");
        assert!(done.stderr.contains(words), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let port = taken.local_addr().unwrap().port().to_string();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("empty.yaml");
    std::fs::write(&config, "").unwrap();
    let config = config.to_str().unwrap();
    for args in [
        &["engine", "--gpu", "H100", "--port", &port][..],
        &["serve", "--config", config, "--listen", &address],
        &[
            "epp",
            "--config-file",
            config,
            "--secure-serving=false",
            "--bind",
            "127.0.0.1",
            "--grpc-port",
            &port,
        ],
    ] {
        let done = run(args.iter().copied());
        assert_eq!(done.code, Some(1), "{args:?}");
        let told = format!("slackline: cannot listen on {address}: ");
        assert!(done.stderr.contains(&told), "{args:?}: {}", done.stderr);
        assert!(done.stderr.contains("in use"), "{args:?}: {}", done.stderr);
    }
}

#[test]
fn what_cannot_start_says_why_in_one_sentence() {
    for (args, words) in [
        (&["engine", "--gpu", "H1"][..], "no profile for accelerator `H1`; known are H100-SXM"),
        (&["engine", "--gpu", "H100", "--port", "65535", "--count", "2"], "65535"),
        (&["serve", "--config", "no-such.yaml"], "`no-such.yaml` is not readable: No such file"),
        (&["serve", "--endpoints-file", "no-such.yaml"], "endpoints file `no-such.yaml`"),
        (&["epp", "--secure-serving=true"], "--secure-serving=false"),
        (&["load", "--target", "here", "--model", "m"], "`here`"),
        (&["load", "--target", "http://h", "--model", "m", "--trace", "no.csv"], "`no.csv`"),
        (&["demo", "--json", "no-such-folder/x.json"], "no folder `no-such-folder`"),
    ] {
        let done = slackline(args.iter().copied()).current_dir(std::env::temp_dir()).output();
        let done = crate::program::Done::from(done.unwrap());
        assert_eq!(done.code, Some(1), "{args:?}");
        assert!(done.stderr.starts_with("slackline: "), "{args:?}: {}", done.stderr);
        assert!(done.stderr.contains(words), "{args:?}: {}", done.stderr);
        assert_eq!(done.stderr.lines().count(), 1, "{args:?}: {}", done.stderr);
    }
}

#[test]
fn without_endpoints_the_gateway_says_how_to_name_them() {
    let folder = tempfile::tempdir().unwrap();
    let output = slackline(["serve"]).current_dir(folder.path()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("--config") && stderr.contains("--endpoints-file"), "{stderr}");
}

#[test]
fn known_profiles_are_listed_with_what_they_rest_on() {
    let done = run(["engine", "--list"]);
    assert_eq!(done.code, Some(0));
    let line = |gpu: &str| {
        let starts = |line: &&str| line.starts_with(gpu);
        done.stdout.lines().find(starts).map(str::to_owned).unwrap()
    };
    assert!(line("H100-SXM").ends_with("measured"), "{}", done.stdout);
    assert!(line("L4 ").ends_with("estimated"), "{}", done.stdout);
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let mut child = slackline(["engine", "--list"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn a_wrong_log_filter_is_named() {
    let output = slackline(["engine", "--list"]).env("SLACKLINE_LOG", "loud=!!").output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.starts_with("slackline: SLACKLINE_LOG: "), "{stderr}");
}
