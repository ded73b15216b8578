//! The reasons of a decision, as the value of a header.

use std::fmt::Write as _;

use http::HeaderValue;
use schedule::Explanation;

/// The reasons as compact JSON in ASCII; `None` where they cannot be written.
pub(crate) fn header(explanation: &Explanation) -> Option<HeaderValue> {
    let json = serde_json::to_string(explanation).ok()?;
    HeaderValue::try_from(ascii(json)).ok()
}

/// `json` with every character outside ASCII escaped. Those stand in strings only.
fn ascii(json: String) -> String {
    if json.is_ascii() {
        return json;
    }
    let mut escaped = String::with_capacity(json.len() * 2);
    for c in json.chars() {
        if c.is_ascii() {
            escaped.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "\\u{unit:04x}");
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_any_script_survive_a_header() {
        let json = serde_json::json!({ "name": "zürich-😀" }).to_string();
        let escaped = ascii(json.clone());
        assert!(escaped.is_ascii());
        let read: serde_json::Value = serde_json::from_str(&escaped).unwrap();
        assert_eq!(read, serde_json::from_str::<serde_json::Value>(&json).unwrap());
    }
}
