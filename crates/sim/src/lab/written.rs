//! Parts of a scenario file that may be written in more than one way.

use std::{borrow::Cow, fmt, marker::PhantomData, path::PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, SeqAccess, Visitor, value::MapAccessDeserializer},
};

/// A policy to compare.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicySpec {
    /// Name in reports; without `file` and `oracle` that of one which comes with the program.
    pub name: String,
    /// What it is, in a sentence.
    pub about: Option<String>,
    /// A configuration file as `slackline serve` reads it, relative to the scenario.
    pub file: Option<PathBuf>,
    /// A policy that knows what no router can know.
    pub oracle: Option<OracleSpec>,
    /// Seconds of arrivals that the clairvoyant one looks ahead.
    pub window_s: Option<f64>,
    /// Endpoints that it tries for each request.
    pub breadth: Option<usize>,
}

/// A policy that knows what no router can know.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub enum OracleSpec {
    /// Knows what every request would take on each endpoint now.
    TrueLatency,
    /// Knows that and the arrivals to come.
    Clairvoyant,
}

/// An entry of `policies` that is more than a name.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PolicyEntry {
    /// Name in reports; without `file` and `oracle` that of one which comes with the program.
    name: String,
    /// What it is, in a sentence.
    #[serde(default)]
    about: Option<String>,
    /// A configuration file as `slackline serve` reads it, relative to the scenario.
    #[serde(default)]
    file: Option<PathBuf>,
    /// A policy that knows what no router can know.
    #[serde(default)]
    oracle: Option<OracleSpec>,
    /// Seconds of arrivals that the clairvoyant one looks ahead.
    #[serde(default)]
    window_s: Option<f64>,
    /// Endpoints that it tries for each request.
    #[serde(default)]
    breadth: Option<usize>,
}

/// What [`PolicySpec`] is written as.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it only describes the file")]
enum PolicyShape {
    /// Name of a policy that comes with the program.
    Name(String),
    /// An entry.
    Entry(PolicyEntry),
}

impl JsonSchema for PolicySpec {
    fn schema_name() -> Cow<'static, str> {
        "Policy".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        PolicyShape::json_schema(generator)
    }
}

impl<'de> Deserialize<'de> for PolicySpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrEntry;
        impl<'de> Visitor<'de> for NameOrEntry {
            type Value = PolicySpec;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("the name of a policy, or an entry with `name`")
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<PolicySpec, E> {
                Ok(PolicySpec { name: name.to_owned(), ..PolicySpec::default() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PolicySpec, A::Error> {
                let entry = PolicyEntry::deserialize(MapAccessDeserializer::new(map))?;
                let PolicyEntry { name, about, file, oracle, window_s, breadth } = entry;
                Ok(PolicySpec { name, about, file, oracle, window_s, breadth })
            }
        }
        deserializer.deserialize_any(NameOrEntry)
    }
}

/// Seeds of the runs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Seeds(pub Vec<u64>);

impl Default for Seeds {
    fn default() -> Self {
        Self(vec![1])
    }
}

/// What [`Seeds`] is written as.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "it only describes the file")]
enum SeedsShape {
    /// How many: 3 means 1, 2 and 3.
    Count(u32),
    /// The seeds.
    List(Vec<u64>),
}

impl JsonSchema for Seeds {
    fn schema_name() -> Cow<'static, str> {
        "Seeds".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        SeedsShape::json_schema(generator)
    }
}

impl<'de> Deserialize<'de> for Seeds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct CountOrList;
        impl<'de> Visitor<'de> for CountOrList {
            type Value = Seeds;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a number of seeds up to 1000, or a list of seeds")
            }

            fn visit_u64<E: de::Error>(self, count: u64) -> Result<Seeds, E> {
                if (1..=1_000).contains(&count) {
                    Ok(Seeds((1..=count).collect()))
                } else {
                    Err(E::invalid_value(de::Unexpected::Unsigned(count), &self))
                }
            }

            fn visit_i64<E: de::Error>(self, count: i64) -> Result<Seeds, E> {
                match u64::try_from(count) {
                    Ok(count) => self.visit_u64(count),
                    Err(_) => Err(E::invalid_value(de::Unexpected::Signed(count), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Seeds, A::Error> {
                let mut seeds = Vec::new();
                while let Some(seed) = list.next_element()? {
                    seeds.push(seed);
                }
                if seeds.is_empty() {
                    return Err(de::Error::invalid_length(0, &self));
                }
                Ok(Seeds(seeds))
            }
        }
        deserializer.deserialize_any(CountOrList)
    }
}

/// Values by name, in the order of the file.
#[derive(Clone, Debug)]
pub struct Named<T>(pub Vec<(String, T)>);

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for InOrder<T> {
            type Value = Named<T>;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("values by name")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Named<T>, A::Error> {
                let mut all = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    all.push(entry);
                }
                Ok(Named(all))
            }
        }
        deserializer.deserialize_map(InOrder(PhantomData))
    }
}
