//! The OpenAI SDK for Python as the client of the gateway.

use std::process::Command;

use harness::{Front, Gateway, Tool, fleet, idle, in_checkout, tool};

use crate::site::endpoints;

#[tokio::test]
async fn the_openai_sdk_gets_what_it_asks_for() {
    let Some(python) = tool(Tool::Python) else { return };
    let engines = fleet(&["H100", "L40S"]).await;
    let gateway = Gateway::start(Front::start(endpoints(&engines))).await;
    let mut client = Command::new(python);
    client
        .arg(in_checkout("tests/journey/openai_sdk.py"))
        .arg(format!("http://{}/v1", gateway.address))
        .arg("llama-3.1-8b");
    let ran = tokio::task::spawn_blocking(move || client.output());
    let output = ran.await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    idle(&gateway.router).await;
}
