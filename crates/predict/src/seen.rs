//! Which columns the models may look at: a learner can be held to what somebody else's looks at.

use std::fmt;

use features::{Column, FeatureRow, SCHEMA, WIDTH};
use serde::{Deserialize, Deserializer, Serialize, de::Error};

/// Least likeness ([`strsim::jaro_winkler`]) at which another name is taken to be meant.
const LIKE: f64 = 0.7;

/// The columns by which [`Regime`](crate::Regime) tells how busy an endpoint is.
const REGIME_BY_AHEAD: usize = Column::AheadRequests as usize;
const REGIME_BY_DECODING: usize = Column::Decoding as usize;

/// One column of [`features::SCHEMA`]. In configuration its name; one that does not exist is refused with
/// the nearest that does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FeatureName(usize);

impl FeatureName {
    /// The name.
    pub fn as_str(self) -> &'static str {
        SCHEMA[self.0].name
    }
}

impl fmt::Display for FeatureName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for FeatureName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for FeatureName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if let Some(at) = SCHEMA.iter().position(|feature| feature.name == name) {
            return Ok(Self(at));
        }
        let named = SCHEMA.iter().map(|feature| feature.name);
        let likeness = |known: &str| strsim::jaro_winkler(known, &name);
        let nearest = named
            .clone()
            .max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
            .filter(|nearest| likeness(nearest) >= LIKE);
        let others = match nearest {
            Some(nearest) => format!("the nearest is `{nearest}`"),
            None => format!("there are {}", named.collect::<Vec<_>>().join(", ")),
        };
        Err(D::Error::custom(format_args!("no feature is called `{name}`; {others}")))
    }
}

/// The columns that models see. The default is all.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Seen(Option<[bool; WIDTH]>);

impl Seen {
    /// Those of `names`; all if there is none.
    pub(crate) fn of(names: &[FeatureName]) -> Self {
        let is_named = |at| names.contains(&FeatureName(at));
        Self((!names.is_empty()).then(|| std::array::from_fn(is_named)))
    }

    /// Whether models see every column.
    pub(crate) fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// The row as models see it: columns that they do not see are 0. How busy an endpoint is, by which
    /// rows are kept and promises judged, shows through all the same, as 0 or 1.
    pub(crate) fn row(&self, row: &FeatureRow) -> FeatureRow {
        let Some(seen) = &self.0 else { return *row };
        let values = row.as_slice();
        let value = |at: usize| match at {
            _ if seen[at] => values[at],
            REGIME_BY_AHEAD | REGIME_BY_DECODING if values[at] > 0.0 => 1.0,
            _ => 0.0,
        };
        FeatureRow::from(std::array::from_fn(value))
    }

    /// The names of the columns that models see; none if they see all.
    pub(crate) fn names(&self) -> Vec<String> {
        let seen = |at: &usize| self.0.is_some_and(|seen| seen[*at]);
        (0..WIDTH).filter(seen).map(|at| SCHEMA[at].name.to_owned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Regime;

    #[test]
    fn what_is_not_named_is_not_seen() {
        let names: Vec<FeatureName> =
            serde_json::from_str(r#"["prompt_tokens", "waiting_requests"]"#).unwrap();
        let row = Seen::of(&names).row(&FeatureRow::from([3.0; WIDTH]));
        let value = |of| row.get(of).to_bits();
        assert_eq!(value(Column::Prompt), 3.0_f32.to_bits());
        assert_eq!(value(Column::Waiting), 3.0_f32.to_bits());
        assert_eq!(value(Column::Step), 0.0_f32.to_bits());
        assert_eq!(value(Column::Decoding), 1.0_f32.to_bits());
        assert_eq!(Regime::of(&row), Regime::Queued);
        assert_eq!(Seen::of(&names).names(), ["prompt_tokens", "waiting_requests"]);
        assert_eq!(Seen::of(&[]), Seen::default());
    }

    #[test]
    fn an_unknown_feature_is_refused_with_the_nearest() {
        let error = |text: &str| serde_json::from_str::<FeatureName>(text).unwrap_err().to_string();
        assert!(error(r#""waiting_request""#).contains("`waiting_requests`"));
        assert!(error(r#""kv_cache_utilization""#).contains("`kv_utilization_ratio`"));
        assert!(error(r#""x""#).contains("ahead_tokens, "));
    }
}
