//! The fleet of a scenario: its groups with their profiles, the names of the endpoints, and the price.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use types::Role;

use super::{
    spec::{Group, RoleSpec, Spec},
    wrong::{Wrong, above_zero, not_negative, seconds},
};
use crate::{
    engine::Options,
    fleet::Member,
    profile::{Profile, ProfileError},
};

/// Endpoints of the largest fleet.
const MOST: usize = 10_000;

/// A group of equal endpoints with what their step times come from.
#[derive(Clone, Debug)]
struct Known {
    group: Group,
    profile: Profile,
    names: Vec<String>,
}

/// A fleet whose profiles were found.
#[derive(Clone, Debug)]
pub struct Fleet {
    groups: Vec<Known>,
}

impl Fleet {
    /// The fleet of `spec`: the one called `name` of several, the first by default.
    pub fn of(spec: &Spec, name: Option<&str>) -> Result<Self, Wrong> {
        let fleets = &spec.fleets.0;
        match (spec.fleet.is_empty(), fleets.is_empty()) {
            (false, false) => {
                return Err(Wrong::at("fleets", "a scenario has either `fleet` or `fleets`"));
            }
            (true, true) => return Err(Wrong::at("", "no `fleet` is given")),
            (false, true) if name.is_none() => {
                return Self::from_groups(&spec.fleet, &spec.model, "fleet");
            }
            _ => {}
        }
        let found = match name {
            Some(name) => fleets.iter().find(|(known, _)| known == name),
            None => fleets.first(),
        };
        let Some((name, groups)) = found else {
            let name = name.unwrap_or_default();
            let known = fleets.iter().map(|(known, _)| known.clone());
            let path = if fleets.is_empty() { "fleet" } else { "fleets" };
            return Err(Wrong::unknown(path, format!("no fleet is called `{name}`"), name, known));
        };
        Self::from_groups(groups, &spec.model, &format!("fleets.{name}"))
    }

    /// A fleet of `groups`, which stand at `path` of a scenario for `model`.
    pub(super) fn from_groups(groups: &[Group], model: &str, path: &str) -> Result<Self, Wrong> {
        let mut taken = BTreeMap::<String, usize>::new();
        let mut known = Vec::new();
        for (at, group) in groups.iter().enumerate() {
            let path = format!("{path}[{at}]");
            check(group, &path)?;
            let profile = profile_of(group, model, &path)?;
            let prefix = group.name.clone().unwrap_or_else(|| profile.gpu.to_lowercase());
            let first = taken.entry(prefix.clone()).or_default();
            let single = group.name.is_some() && group.count == 1 && *first == 0;
            let names = if single {
                vec![prefix.clone()]
            } else {
                (*first..*first + group.count).map(|at| format!("{prefix}-{at}")).collect()
            };
            *first += group.count;
            known.push(Known { group: group.clone(), profile, names });
        }
        let fleet = Self { groups: known };
        if fleet.len() == 0 {
            return Err(Wrong::at(path, "has no endpoint"));
        }
        if fleet.len() > MOST {
            return Err(Wrong::at(path, format!("has more than {MOST} endpoints")));
        }
        let mut names: Vec<_> = fleet.names().collect();
        names.sort_unstable();
        if let Some([twice, ..]) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(Wrong::at(path, format!("two endpoints are called `{twice}`")));
        }
        Ok(fleet)
    }

    /// Its groups as written.
    pub(super) fn groups(&self) -> Vec<Group> {
        self.groups.iter().map(|known| known.group.clone()).collect()
    }

    /// How many endpoints there are.
    #[expect(clippy::len_without_is_empty, reason = "no fleet is empty")]
    pub fn len(&self) -> usize {
        self.groups.iter().map(|known| known.names.len()).sum()
    }

    /// Names of the endpoints, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.groups.iter().flat_map(|known| known.names.iter().map(String::as_str))
    }

    /// Accelerator class of each endpoint, in order.
    pub fn accelerators(&self) -> impl Iterator<Item = &str> {
        self.groups
            .iter()
            .flat_map(|known| std::iter::repeat_n(&*known.profile.gpu, known.names.len()))
    }

    /// The fleet in words, such as `4 H100-SXM llama-3.1-8b, 4 L40S llama-3.1-8b`.
    pub fn words(&self) -> String {
        let mut text = String::new();
        for Known { group, profile, names } in &self.groups {
            let comma = if text.is_empty() { "" } else { ", " };
            let _ = write!(text, "{comma}{} {} {}", names.len(), profile.gpu, profile.model);
            if group.weights.is_some() {
                let _ = write!(text, " {}", profile.weights);
            }
            if profile.tp > 1 {
                let _ = write!(text, " tp{}", profile.tp);
            }
        }
        text
    }

    /// Price of all endpoints per hour; endpoints without a price cost nothing.
    pub fn price_per_hour(&self) -> f64 {
        self.cost(Duration::from_hours(1), false)
    }

    /// Price for `span` from the start, for what each endpoint was there where `joined` says so.
    pub(super) fn cost(&self, span: Duration, joined: bool) -> f64 {
        let of = |Known { group, names, .. }: &Known| {
            let late = if joined { seconds(group.joins_at_s) } else { Duration::ZERO };
            let hours = span.saturating_sub(late).as_secs_f64() / 3_600.0;
            group.price_per_hour.unwrap_or_default() * names.len() as f64 * hours
        };
        self.groups.iter().map(of).sum()
    }

    /// Profiles whose coefficients are only estimated, and roles that are simulated as no more than a label.
    pub(super) fn caveats(&self) -> Vec<String> {
        let mut caveats = Vec::new();
        for Known { group, profile, .. } in &self.groups {
            if profile.estimated {
                let variant = format!("{} {} {}", profile.gpu, profile.model, profile.weights);
                caveats.push(format!(
                    "step times of {variant} are estimated from its specifications, not measured"
                ));
            }
            if group.role != RoleSpec::Both {
                caveats.push(
                    "roles are labels of endpoints: splitting a request into prefill and decode is \
                     not modelled"
                        .to_owned(),
                );
            }
        }
        caveats.sort();
        caveats.dedup();
        caveats
    }

    /// The endpoints for a run with this `seed`.
    pub fn members(&self, seed: u64) -> Vec<Member> {
        let mut members = Vec::with_capacity(self.len());
        for Known { group, profile, names } in &self.groups {
            let fallback = Options::new(profile);
            for name in names {
                let options = Options {
                    max_num_batched_tokens: group
                        .max_num_batched_tokens
                        .unwrap_or(fallback.max_num_batched_tokens),
                    max_num_seqs: group.max_num_seqs.unwrap_or(fallback.max_num_seqs),
                    kv_blocks: group.kv_blocks,
                    slowdown: group.slowdown,
                    seed: mixed(seed, members.len() as u64),
                    ..fallback.clone()
                };
                let joins_at = if group.joins_at_s > 0.0 {
                    seconds(group.joins_at_s + group.startup_s)
                } else {
                    Duration::ZERO
                };
                members.push(Member {
                    name: name.clone(),
                    profile: profile.clone(),
                    options,
                    role: role_of(group.role),
                    joins_at,
                });
            }
        }
        members
    }
}

/// A seed for each of many, which no other pair of them shares (the mixer of `SplitMix64`).
fn mixed(seed: u64, at: u64) -> u64 {
    let mut z = seed.wrapping_add(at.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn role_of(role: RoleSpec) -> Role {
    match role {
        RoleSpec::Prefill => Role::Prefill,
        RoleSpec::Decode => Role::Decode,
        RoleSpec::Both => Role::Both,
    }
}

fn check(group: &Group, path: &str) -> Result<(), Wrong> {
    let at = |key: &str| format!("{path}.{key}");
    if group.count == 0 {
        return Err(Wrong::at(at("count"), "must be above 0"));
    }
    if group.count > MOST {
        return Err(Wrong::at(at("count"), format!("must be at most {MOST}")));
    }
    not_negative(&at("price_per_hour"), group.price_per_hour.unwrap_or_default())?;
    not_negative(&at("startup_s"), group.startup_s)?;
    not_negative(&at("joins_at_s"), group.joins_at_s)?;
    above_zero(&at("slowdown"), group.slowdown)?;
    for (key, value) in [
        ("max_num_seqs", group.max_num_seqs),
        ("max_num_batched_tokens", group.max_num_batched_tokens),
        ("kv_blocks", group.kv_blocks),
        ("tp", group.tp),
    ] {
        if value == Some(0) {
            return Err(Wrong::at(at(key), "must be above 0"));
        }
    }
    let fits = |name: &String| {
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        (1..=50).contains(&name.len()) && name.chars().all(is_plain) && !name.starts_with('-')
    };
    if group.name.as_ref().is_some_and(|name| !fits(name)) {
        let reason = "must be up to 50 letters in lower case, digits and hyphens";
        return Err(Wrong::at(at("name"), reason));
    }
    Ok(())
}

fn profile_of(group: &Group, model: &str, path: &str) -> Result<Profile, Wrong> {
    let asked = group.model.as_deref().unwrap_or(model);
    let found = Profile::find(&group.gpu, asked, group.weights.as_deref(), group.tp);
    found.map_err(|error| match error {
        ProfileError::Accelerator { ref name, ref known } => {
            let full = known.split(", ").map(str::to_owned);
            let short = full.clone().filter_map(|name| Some(name.split_once('-')?.0.to_owned()));
            let reason = format!("no profile for accelerator `{name}`");
            Wrong::unknown(format!("{path}.gpu"), reason, name, full.chain(short))
        }
        ProfileError::Model { ref gpu, ref known, .. } => {
            let models = known.split(", ").filter_map(|variant| variant.split(' ').next());
            if models.clone().any(|known| known.eq_ignore_ascii_case(asked)) {
                let key = if group.weights.is_some() { "weights" } else { "tp" };
                return Wrong::at(format!("{path}.{key}"), error.to_string());
            }
            let key = if group.model.is_some() { format!("{path}.model") } else { "model".into() };
            let reason = format!("no profile for `{asked}` on `{gpu}`");
            Wrong::unknown(key, reason, asked, models.map(str::to_owned))
        }
    })
}
