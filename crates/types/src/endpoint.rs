//! Endpoints: who they are, where they are and what they are made of.

use std::{collections::BTreeMap, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// Label that carries the role.
const ROLE_LABEL: &str = "llm-d.ai/role";
/// Labels that may carry the accelerator class, the most telling first.
const ACCELERATOR_LABELS: [&str; 5] = [
    "llm-d.ai/accelerator",
    "inference.optimization/acceleratorName",
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "accelerator",
];

/// Label that carries the number of GPUs that one engine spans.
const PARALLEL_LABEL: &str = "llm-d.ai/tensor-parallel";

/// Identity of an endpoint: `namespace/name`. Cheap to clone.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct EndpointId(Arc<str>);

impl EndpointId {
    /// The identity of `name` in `namespace`.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// `namespace/name`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name without its namespace.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&*self.0, |(_, name)| name)
    }
}

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Host (name, IPv4 or IPv6 without brackets) and port. Cheap to clone.
///
/// Displays as `host:port`, with brackets around an IPv6 host.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Address {
    host: Arc<str>,
    port: u16,
}

/// The text is not an address.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AddressError {
    /// The host is neither an IP address nor a host name.
    #[error("`{0}` is neither an IP address nor a host name")]
    Host(String),
    /// The port is missing or not in `1..=65535`.
    #[error("`{0}` is not a port in 1..=65535")]
    Port(String),
}

impl Address {
    /// Checks `host` (an IP address, in brackets or not, or a DNS name) and `port`.
    pub fn new(host: &str, port: u16) -> Result<Self, AddressError> {
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
        let is_ip = bare.parse::<std::net::IpAddr>().is_ok();
        if !(is_ip || bare == host && is_host_name(host)) {
            return Err(AddressError::Host(host.to_owned()));
        }
        if port == 0 {
            return Err(AddressError::Port("0".to_owned()));
        }
        Ok(Self { host: bare.into(), port })
    }

    /// Host, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Whether `host` is a DNS name: labels of letters, digits, `-` and `_`, 253 characters at most.
fn is_host_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let looks_numeric = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    host.len() <= 253 && !looks_numeric && host.trim_end_matches('.').split('.').all(label)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    /// Reads `host:port`; an IPv6 host stands in brackets.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (host, port) =
            text.rsplit_once(':').ok_or_else(|| AddressError::Port(String::new()))?;
        if host.contains(':') && !host.starts_with('[') {
            return Err(AddressError::Host(host.to_owned()));
        }
        let port = port.parse().map_err(|_| AddressError::Port(port.to_owned()))?;
        Self::new(host, port)
    }
}

impl Serialize for Address {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Phases of a request that an endpoint serves.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Role {
    /// Prefill only.
    Prefill,
    /// Decode only.
    Decode,
    /// Both phases: the default.
    #[default]
    Both,
}

impl Role {
    /// The role as `llm-d.ai/role` spells it; every spelling that includes both phases is [`Role::Both`].
    pub fn from_label(label: Option<&str>) -> Self {
        match label {
            Some("prefill" | "encode-prefill") => Self::Prefill,
            Some("decode") => Self::Decode,
            _ => Self::Both,
        }
    }

    /// The word used in metrics and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::Both => "both",
        }
    }
}

/// Accelerator class, such as `H100-SXM`. Cheap to clone.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Accelerator(Arc<str>);

impl Accelerator {
    /// The class called `name`.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// Its name; `unknown` where no label tells.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// One routable model-server address.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Endpoint {
    /// Identity: survives a change of address.
    pub id: EndpointId,
    /// Where requests go.
    pub address: Address,
    /// Labels, as discovery gave them.
    pub labels: BTreeMap<String, String>,
}

impl Endpoint {
    /// Phases it serves, by the label `llm-d.ai/role`.
    pub fn role(&self) -> Role {
        Role::from_label(self.labels.get(ROLE_LABEL).map(String::as_str))
    }

    /// Its accelerator class, by the first label present of `llm-d.ai/accelerator`,
    /// `inference.optimization/acceleratorName`, `nvidia.com/gpu.product`,
    /// `amd.com/gpu.product-name` and `accelerator`. Where `llm-d.ai/tensor-parallel` tells how many
    /// GPUs one engine spans, that is part of the class: `H100-SXM tp4`.
    pub fn accelerator(&self) -> Accelerator {
        let label = ACCELERATOR_LABELS.iter().find_map(|label| self.labels.get(*label));
        let name = label.map_or("unknown", String::as_str);
        let parallel = self.labels.get(PARALLEL_LABEL).and_then(|tp| tp.trim().parse::<u32>().ok());
        match parallel.filter(|tp| *tp > 0) {
            Some(tp) => Accelerator::new(&format!("{name} tp{tp}")),
            None => Accelerator::new(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_keep_their_form() {
        for text in ["10.0.0.1:8000", "[2001:db8::1]:80", "vllm-0.pool.svc:8000", "localhost:1"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_says_why() {
        for text in ["10.0.0:80", "2001:db8::1:80", "a b:80", "host:0", "host:99999", "host", ":80"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_most_telling_accelerator_label_wins() {
        let labels = [("accelerator", "gpu"), ("llm-d.ai/accelerator", "H100-SXM")];
        let endpoint = Endpoint {
            id: EndpointId::new("default", "a"),
            address: "10.0.0.1:1".parse().unwrap(),
            labels: labels.map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        };
        assert_eq!(endpoint.accelerator().as_str(), "H100-SXM");
        let mut spanning = endpoint.clone();
        spanning.labels.insert(PARALLEL_LABEL.to_owned(), "4".to_owned());
        assert_eq!(spanning.accelerator().as_str(), "H100-SXM tp4");
        spanning.labels.insert(PARALLEL_LABEL.to_owned(), "many".to_owned());
        assert_eq!(spanning.accelerator().as_str(), "H100-SXM");
        assert_eq!(endpoint.role(), Role::Both);
        assert_eq!(endpoint.id.name(), "a");
    }
}
