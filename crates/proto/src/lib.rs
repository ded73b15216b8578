//! Envoy `ext_proc` messages and service, generated from the files under `proto/`.
//!
//! Bodies and raw header values are [`bytes::Bytes`]. Fields and messages that an endpoint picker
//! does not use are absent; protobuf skips them on the wire.

#[expect(
    missing_docs,
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::default_trait_access,
    clippy::doc_markdown,
    reason = "generated code"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/packages.rs"));
}

pub use generated::envoy;

/// The service, its requests and responses, and the processing mode.
pub mod ext_proc {
    pub use crate::envoy::{extensions::filters::http::ext_proc::v3::*, service::ext_proc::v3::*};
}

/// Headers and metadata.
pub mod core {
    pub use crate::envoy::config::core::v3::*;
}

/// The status of an HTTP response.
pub mod status {
    pub use crate::envoy::r#type::v3::*;
}

/// The JSON-like values of metadata and attributes.
pub mod value {
    pub use prost_types::{ListValue, NullValue, Struct, Value, value::Kind};
}
