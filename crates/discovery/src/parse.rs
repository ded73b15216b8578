//! The text of an endpoints file to a set, with everything that is wrong in it.
//!
//! The schema is the one of llm-d's `file-discovery`, YAML or JSON:
//!
//! ```yaml
//! endpoints:
//! - name: vllm-0              # required; identity is namespace/name
//!   namespace: default        # optional
//!   address: 10.0.0.1         # IPv4, IPv6 or host name
//!   port: "8000"              # a bare number is taken too
//!   labels: {llm-d.ai/role: decode}
//! ```
//!
//! More is accepted than there: IPv6 and host names as address, a bare number as port, and a file of
//! which only some entries are usable.

use std::{collections::HashMap, sync::Arc};

use serde_saphyr::{DuplicateKeyPolicy, Spanned};
use types::{Endpoint, EndpointId};

use crate::{EndpointSet, Problem, entry, node::Node};

/// Largest endpoints file, bytes.
pub const MAX_FILE_BYTES: usize = 1 << 20;

/// A file that was read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Parsed {
    /// The endpoints of its usable entries.
    pub set: EndpointSet,
    /// What is wrong with the others, and warnings; in the order of the file.
    pub problems: Vec<Problem>,
}

/// Reads `text`, the content of `file_name`.
///
/// The error says why the file as a whole is not usable: it is no YAML, it has no `endpoints`, or
/// none of its entries is usable (a list written as empty is fine).
pub fn parse(text: &str, file_name: &str) -> Result<Parsed, Problem> {
    let file: Arc<str> = file_name.into();
    if text.len() > MAX_FILE_BYTES {
        let reason = format!("file has {} bytes, more than {MAX_FILE_BYTES}", text.len());
        return Err(Problem::whole(&file, reason));
    }
    let mut problems = Vec::new();
    let root = read_tree(&file, text)?;
    let entries = find_entries(&file, &root, &mut problems)?;
    let mut endpoints: Vec<Endpoint> = Vec::with_capacity(entries.len());
    let mut lines: HashMap<EndpointId, u64> = HashMap::with_capacity(entries.len());
    let mut first_bad = None;
    for entry in entries {
        match entry::read(&file, entry, &mut problems) {
            Ok(endpoint) => {
                let line = entry.referenced.line();
                if let Some(earlier) = lines.insert(endpoint.id.clone(), line) {
                    let reason = format!(
                        "endpoint `{}` stands on lines {earlier} and {line}: the last one counts",
                        endpoint.id
                    );
                    problems.push(Problem::warning(&file, entry.referenced, reason));
                }
                endpoints.push(endpoint);
            }
            Err(problem) => {
                first_bad.get_or_insert_with(|| problem.clone());
                problems.push(problem);
            }
        }
    }
    if let (true, Some(mut bad)) = (endpoints.is_empty(), first_bad) {
        bad.reason = format!("none of {} endpoints is usable: {}", entries.len(), bad.reason);
        return Err(bad);
    }
    Ok(Parsed { set: EndpointSet::new(endpoints), problems })
}

fn read_tree(file: &Arc<str>, text: &str) -> Result<Spanned<Node>, Problem> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        duplicate_keys: DuplicateKeyPolicy::Error,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let text = error.to_string();
        let Some(at) = error.location() else { return Problem::whole(file, text) };
        let suffix = format!(" at line {}, column {}", at.line(), at.column());
        let reason = text.strip_suffix(suffix.as_str()).unwrap_or(&text);
        // The parser's hint is for programmers.
        let reason = reason.split_once(", set DuplicateKeyPolicy").map_or(reason, |(what, _)| what);
        Problem::error(file, at, reason)
    })
}

fn find_entries<'a>(
    file: &Arc<str>,
    root: &'a Spanned<Node>,
    problems: &mut Vec<Problem>,
) -> Result<&'a [Spanned<Node>], Problem> {
    let Node::Mapping(fields) = &root.value else {
        let reason = format!("file holds {}, not a mapping with `endpoints`", root.value);
        return Err(Problem::error(file, root.referenced, reason));
    };
    let mut endpoints = None;
    for (key, value) in fields {
        if key.value == "endpoints" {
            endpoints = Some(value);
        } else {
            let reason =
                format!("field `{}` is not known and has no effect", key.value.escape_debug());
            problems.push(Problem::warning(file, key.referenced, reason));
        }
    }
    match endpoints {
        None => Err(Problem::error(file, root.referenced, "`endpoints` is missing")),
        Some(Spanned { value: Node::List(entries), .. }) => Ok(entries),
        Some(Spanned { value: Node::Null, .. }) => Ok(&[]),
        Some(node) => {
            let reason = format!("`endpoints` is {}, not a list", node.value);
            Err(Problem::error(file, node.referenced, reason))
        }
    }
}
