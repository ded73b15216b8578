//! What two reports must have in common for their figures to be of one thing.

use std::collections::BTreeMap;

use sim::{ClassAbout, LabReport, PolicyAbout};

use crate::simulate::figures::{seeds, told_seeds};

/// What is not the same in both, a line for each.
pub(super) fn differing(before: &LabReport, after: &LabReport) -> Vec<String> {
    let mut lines = Vec::new();
    let mut of = |what: &str, a: String, b: String| {
        if a != b {
            let or_none = |text: String| if text.is_empty() { "none".to_owned() } else { text };
            lines.push(format!("{what}: {} -> {}", or_none(a), or_none(b)));
        }
    };
    of("scenario", before.scenario.clone(), after.scenario.clone());
    of("fleet", before.fleet.clone(), after.fleet.clone());
    of("workload", before.workload.clone(), after.workload.clone());
    of("target", before.target.to_string(), after.target.to_string());
    of("classes", classes(&before.classes), classes(&after.classes));
    of("seeds", told_seeds(&seeds(before)), told_seeds(&seeds(after)));
    of("caveats", before.caveats.join("; "), after.caveats.join("; "));
    let known: BTreeMap<_, _> = before.policies.iter().map(|p| (&*p.name, p)).collect();
    for policy in &after.policies {
        if let Some(was) = known.get(&*policy.name) {
            of(&format!("policy {}", policy.name), about(was), about(policy));
        }
    }
    let missing = |from: &LabReport, of: &LabReport| {
        let lacks = |p: &&PolicyAbout| !from.policies.iter().any(|other| other.name == p.name);
        let names: Vec<_> = of.policies.iter().filter(lacks).map(|p| p.name.as_str()).collect();
        names.join(", ")
    };
    for (when, names) in [("before", missing(after, before)), ("after", missing(before, after))] {
        if !names.is_empty() {
            lines.push(format!("policies only {when}: {names}"));
        }
    }
    lines
}

fn classes(classes: &[ClassAbout]) -> String {
    let ceiling =
        |name: &str, ms: Option<f32>| ms.map_or_else(String::new, |ms| format!(" {name} {ms} ms"));
    let told = classes.iter().map(|class| {
        let (ttft, itl) = (ceiling("TTFT", class.ttft_ms), ceiling("ITL", class.itl_ms));
        format!("{}{ttft}{itl} weight {}", class.name, class.weight)
    });
    told.collect::<Vec<_>>().join("; ")
}

fn about(policy: &PolicyAbout) -> String {
    format!("{}{}", policy.about, if policy.oracle { " (oracle)" } else { "" })
}
