//! Where requests go that share a prompt prefix, and where those go that share nothing.

use std::collections::BTreeMap;

use harness::{Engine, chat, fleet, post_with};
use router::Options;
use schedule::Policy;
use serde_json::Value;

use crate::site::{Site, endpoints, sites_with};

/// The policy of a new installation, and the one it starts from.
const POLICIES: [Policy; 2] = [Policy::Learned, Policy::Heuristic];

/// Sends one request after the other and counts the answers of each engine.
async fn answers_of_each(
    site: &Site,
    engines: &[Engine],
    prompts: impl IntoIterator<Item = String>,
) -> BTreeMap<String, u32> {
    let mut counts: BTreeMap<String, u32> =
        engines.iter().map(|engine| (engine.endpoint().id.name().to_owned(), 0)).collect();
    for prompt in prompts {
        site.front().settled().await;
        let explain = [("x-slackline-explain", "true")];
        let body = chat(&prompt, 4).to_string();
        let response = post_with(&site.address, "/v1/chat/completions", &explain, body).await;
        let answer = response.whole().await;
        assert_eq!(answer.status, 200, "{}: {}", site.name, answer.text());
        let reasons = answer.header("x-slackline-explanation");
        let reasons: Value = serde_json::from_str(reasons).unwrap();
        assert_eq!(reasons["rung"], "heuristic", "{}: {reasons}", site.name);
        *counts.get_mut(answer.header("x-inference-pod")).unwrap() += 1;
    }
    counts
}

fn options(policy: Policy, seed: u64) -> Options {
    let mut options = Options { seed, ..Options::default() };
    options.schedule.policy = policy;
    options
}

#[tokio::test]
async fn eight_requests_with_one_prefix_go_to_one_endpoint() {
    let system = "You are a patient teacher who explains each step before the next. ".repeat(40);
    let engines = fleet(&["H100"; 4]).await;
    for policy in POLICIES {
        for site in sites_with(&options(policy, 1), endpoints(&engines)).await {
            let prompts = (0..8).map(|number| format!("{system}Question {number}: why?"));
            let counts = answers_of_each(&site, &engines, prompts).await;
            let mut sorted: Vec<_> = counts.values().copied().collect();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 0, 0, 8], "{} {policy:?}: {counts:?}", site.name);
        }
    }
}

#[tokio::test]
async fn eight_distinct_requests_spread_evenly_over_four_endpoints() {
    let engines = fleet(&["H100"; 4]).await;
    for policy in POLICIES {
        for site in sites_with(&options(policy, 2), endpoints(&engines)).await {
            let prompts = (0..8).map(|number| format!("{number} ").repeat(900));
            let counts = answers_of_each(&site, &engines, prompts).await;
            let spread: Vec<_> = counts.values().copied().collect();
            assert_eq!(spread, [2, 2, 2, 2], "{} {policy:?}: {counts:?}", site.name);
        }
    }
}
