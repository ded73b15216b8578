//! One entry of an endpoints file, or of the list in the configuration, to one endpoint.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;
use serde_saphyr::{Location, Spanned};
use types::{Address, AddressError, Endpoint, EndpointId};

use crate::{Problem, node::Node};

/// Namespace of an entry that names none.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// A port as written: quoted, as the file schema asks, or bare.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "port is neither a number nor a quoted number")]
pub(crate) enum Port {
    Number(u64),
    Text(String),
}

/// Why an entry is no endpoint.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Reason {
    #[error("name is empty")]
    Name,
    #[error("namespace `{0}` has a `/`")]
    Namespace(String),
    #[error("port: {0}")]
    Port(AddressError),
    #[error("address: {0}")]
    Address(AddressError),
}

/// Checks the identity.
pub(crate) fn identity(name: &str, namespace: &str) -> Result<EndpointId, Reason> {
    if name.trim().is_empty() {
        return Err(Reason::Name);
    }
    // A slash would let two pairs make one identity.
    if namespace.contains('/') {
        return Err(Reason::Namespace(namespace.to_owned()));
    }
    let namespace = if namespace.is_empty() { DEFAULT_NAMESPACE } else { namespace };
    Ok(EndpointId::new(namespace, name))
}

/// Checks the port.
pub(crate) fn port(port: &Port) -> Result<u16, Reason> {
    let number = match port {
        Port::Number(number) => u16::try_from(*number).ok(),
        Port::Text(text) => text.parse().ok(),
    };
    number.filter(|number| *number > 0).ok_or_else(|| {
        Reason::Port(AddressError::Port(match port {
            Port::Number(number) => number.to_string(),
            Port::Text(text) => text.clone(),
        }))
    })
}

/// Checks the address.
pub(crate) fn address(host: &str, port: u16) -> Result<Address, Reason> {
    Address::new(host, port).map_err(Reason::Address)
}

/// Reads one entry; warnings go to `problems`, what makes it unusable is returned.
pub(crate) fn read(
    file: &Arc<str>,
    entry: &Spanned<Node>,
    problems: &mut Vec<Problem>,
) -> Result<Endpoint, Problem> {
    let at = entry.referenced;
    let Node::Mapping(fields) = &entry.value else {
        let reason = format!("{} is no endpoint: a mapping with a name is needed", entry.value);
        return Err(Problem::error(file, at, reason));
    };
    let mut found = Fields::default();
    for (key, value) in fields {
        match key.value.as_str() {
            "name" => found.name = Some(value),
            "namespace" => found.namespace = Some(value),
            "address" => found.address = Some(value),
            "port" => found.port = Some(value),
            "labels" => found.labels = Some(value),
            unknown => problems.push(Problem::warning(
                file,
                key.referenced,
                format_args!("field `{}` is not known and has no effect", unknown.escape_debug()),
            )),
        }
    }
    found.check(at).map_err(|(at, reason)| {
        let name = match found.name {
            Some(Spanned { value: Node::Text(name), .. }) if !name.is_empty() => {
                format!("endpoint `{}`: ", name.escape_debug())
            }
            _ => String::new(),
        };
        Problem::error(file, at, format_args!("{name}{reason}"))
    })
}

/// The known fields of an entry.
#[derive(Default)]
struct Fields<'a> {
    name: Option<&'a Spanned<Node>>,
    namespace: Option<&'a Spanned<Node>>,
    address: Option<&'a Spanned<Node>>,
    port: Option<&'a Spanned<Node>>,
    labels: Option<&'a Spanned<Node>>,
}

/// Where, and why.
type At = (Location, String);

impl Fields<'_> {
    fn check(&self, at: Location) -> Result<Endpoint, At> {
        let name = required(self.name, "name", at)?;
        let name_at = self.name.map_or(at, |node| node.referenced);
        let namespace = optional(self.namespace, "namespace")?;
        let id =
            identity(name, namespace.unwrap_or_default()).map_err(|e| (name_at, e.to_string()))?;
        let host = required(self.address, "address", at)?;
        let host_at = self.address.map_or(at, |node| node.referenced);
        let (port, port_at) = self.port(at)?;
        let port = self::port(&port).map_err(|e| (port_at, e.to_string()))?;
        let address = address(host, port).map_err(|e| (host_at, e.to_string()))?;
        Ok(Endpoint { id, address, labels: self.labels()? })
    }

    fn port(&self, at: Location) -> Result<(Port, Location), At> {
        let missing = || (at, "port is missing".to_owned());
        let node = self.port.ok_or_else(missing)?;
        let port = match &node.value {
            Node::Text(text) => Port::Text(text.clone()),
            Node::Integer(number) => {
                u64::try_from(*number).map_or_else(|_| Port::Text(number.to_string()), Port::Number)
            }
            Node::Null => return Err(missing()),
            other => return Err((node.referenced, format!("port is {other}, not a number"))),
        };
        Ok((port, node.referenced))
    }

    fn labels(&self) -> Result<BTreeMap<String, String>, At> {
        let Some(node) = self.labels else { return Ok(BTreeMap::new()) };
        let labels = match &node.value {
            Node::Null => return Ok(BTreeMap::new()),
            Node::Mapping(labels) => labels,
            other => return Err((node.referenced, format!("labels is {other}, not a mapping"))),
        };
        let label = |(key, value): &(Spanned<String>, Spanned<Node>)| match &value.value {
            Node::Text(text) => Ok((key.value.clone(), text.clone())),
            other => {
                let key = key.value.escape_debug();
                Err((value.referenced, format!("label `{key}` is {other}, not text: quote it")))
            }
        };
        labels.iter().map(label).collect()
    }
}

fn required<'a>(node: Option<&'a Spanned<Node>>, field: &str, at: Location) -> Result<&'a str, At> {
    optional(node, field)?
        .ok_or_else(|| (node.map_or(at, |node| node.referenced), format!("{field} is missing")))
}

fn optional<'a>(node: Option<&'a Spanned<Node>>, field: &str) -> Result<Option<&'a str>, At> {
    match node {
        None | Some(Spanned { value: Node::Null, .. }) => Ok(None),
        Some(Spanned { value: Node::Text(text), .. }) => Ok(Some(text)),
        Some(node) => {
            Err((node.referenced, format!("{field} is {}, not text: quote it", node.value)))
        }
    }
}
