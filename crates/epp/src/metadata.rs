//! What proxy and endpoint picker tell each other in metadata.

use proto::{
    core::Metadata,
    value::{Kind, Struct, Value},
};
use types::SubsetEntry;

use crate::headers::DESTINATION;

/// Namespace of what load balancing decided.
const LB: &str = "envoy.lb";
/// Namespace of the hint which endpoints may serve.
const SUBSET: &str = "envoy.lb.subset_hint";
const SUBSET_KEY: &str = "x-gateway-destination-endpoint-subset";
const SERVED_KEY: &str = "x-gateway-destination-endpoint-served";

fn find<'a>(metadata: Option<&'a Metadata>, namespace: &str, key: &str) -> Option<&'a Kind> {
    metadata?.filter_metadata.get(namespace)?.fields.get(key)?.kind.as_ref()
}

/// The endpoints that may serve, where the proxy says so: a list, or text with commas. A value of
/// another type cannot name an endpoint, so it allows none; null is no hint.
pub(crate) fn subset(metadata: Option<&Metadata>) -> Option<Vec<SubsetEntry>> {
    match find(metadata, SUBSET, SUBSET_KEY)? {
        Kind::NullValue(_) => None,
        Kind::ListValue(list) => Some(list.values.iter().flat_map(entries).collect()),
        Kind::StringValue(text) => Some(parse(text).collect()),
        _ => Some(Vec::new()),
    }
}

fn entries(value: &Value) -> impl Iterator<Item = SubsetEntry> {
    let text = match &value.kind {
        Some(Kind::StringValue(text)) => text.as_str(),
        _ => "",
    };
    parse(text)
}

fn parse(text: &str) -> impl Iterator<Item = SubsetEntry> {
    text.split(',').filter(|entry| !entry.trim().is_empty()).map(SubsetEntry::parse)
}

/// `host:port` that really served, where the proxy says so.
pub(crate) fn served(metadata: Option<&Metadata>) -> Option<&str> {
    match find(metadata, LB, SERVED_KEY)? {
        Kind::StringValue(text) if !text.is_empty() => Some(text),
        _ => None,
    }
}

/// The metadata that names `address` as the destination.
pub(crate) fn destination(address: &str) -> Struct {
    let text = Value { kind: Some(Kind::StringValue(address.to_owned())) };
    let inner = Struct { fields: [(DESTINATION.to_owned(), text)].into() };
    let outer = Value { kind: Some(Kind::StructValue(inner)) };
    Struct { fields: [(LB.to_owned(), outer)].into() }
}

#[cfg(test)]
mod tests {
    use proto::value::ListValue;

    use super::*;

    fn hint(kind: Kind) -> Option<Vec<SubsetEntry>> {
        let fields = [(SUBSET_KEY.to_owned(), Value { kind: Some(kind) })].into();
        let filter_metadata = [(SUBSET.to_owned(), Struct { fields })].into();
        subset(Some(&Metadata { filter_metadata }))
    }

    fn list(entries: &[&str]) -> Kind {
        let text = |entry: &&str| Value { kind: Some(Kind::StringValue((*entry).to_owned())) };
        Kind::ListValue(ListValue { values: entries.iter().map(text).collect() })
    }

    fn parsed(entries: &[&str]) -> Vec<SubsetEntry> {
        entries.iter().map(|entry| SubsetEntry::parse(entry)).collect()
    }

    #[test]
    fn a_subset_is_a_list_or_text_with_commas() {
        assert_eq!(hint(list(&["10.0.0.1:1", "::1"])), Some(parsed(&["10.0.0.1:1", "::1"])));
        let text = Kind::StringValue("10.0.0.1:1, [::1]:2,".to_owned());
        assert_eq!(hint(text), Some(parsed(&["10.0.0.1:1", "[::1]:2"])));
    }

    #[test]
    fn a_hint_that_names_nothing_allows_nothing_and_no_hint_allows_all() {
        assert_eq!(hint(list(&[])), Some(Vec::new()));
        assert_eq!(hint(Kind::StringValue(String::new())), Some(Vec::new()));
        assert_eq!(hint(Kind::NumberValue(1.0)), Some(Vec::new()));
        assert_eq!(hint(Kind::NullValue(0)), None);
        assert_eq!(subset(None), None);
    }
}
