//! The `generate:` part of a scenario file: which published workload, at what rate, changed in what.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    arrivals::Arrivals,
    length::{Length, Lengths},
};

/// Most users of one workload.
const MOST_USERS: u64 = 1_000_000;

/// A published workload. Each is our reading of what its authors tell of it.
#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Like {
    /// Groups of users that share a system prompt and talk in turns; the numbers of `scenario-b`.
    SharedPrefix,
    /// llm-d, March 2026, scenario A: 6 groups of 1,000 users, system 1,000, question 30, answer 1,000.
    ScenarioA,
    /// Scenario B: 6 groups of 1,000 users, system 1,000, question 3,000, answer 1,000.
    ScenarioB,
    /// Scenario C: 150 groups of 5 users, system 6,000, question 1,200, answer 1,000.
    ScenarioC,
    /// Scenario D: 150 groups of 5 users, system 1,000, question 6,200, answer 1,000.
    ScenarioD,
    /// Single questions with lengths like those of `ShareGPT`: mean 220 and median 100 in, 200 out.
    Sharegpt,
    /// llm-d, March 2026, production-derived: very long tails, most tokens cached, and now and then
    /// every shared prefix changes, so that the hits collapse.
    Production,
    /// llm-d, August 2026: every conversation brings 3,000 to 100,000 tokens of code of its own.
    CodeGeneration,
    /// llm-d, August 2026: short prompts, answers of 8,000 tokens.
    Reasoning,
    /// llm-d, August 2026: 150 groups of 5 users, system 6,000, question 1,200, answer 1,000.
    B2bSaas,
    /// Tool loops: context grows in many turns, answers are short, pauses are those of a tool.
    Agentic,
    /// Rollouts of reinforcement learning: all samples of a batch of prompts arrive at one instant.
    RlRollout,
}

impl Like {
    /// Its name in files and reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::SharedPrefix => "shared-prefix",
            Self::ScenarioA => "scenario-a",
            Self::ScenarioB => "scenario-b",
            Self::ScenarioC => "scenario-c",
            Self::ScenarioD => "scenario-d",
            Self::Sharegpt => "sharegpt",
            Self::Production => "production",
            Self::CodeGeneration => "code-generation",
            Self::Reasoning => "reasoning",
            Self::B2bSaas => "b2b-saas",
            Self::Agentic => "agentic",
            Self::RlRollout => "rl-rollout",
        }
    }
}

/// A generated workload: open loop, so no arrival depends on how fast an answer was.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Generate {
    /// Which published workload; everything below but the rate is as it says, unless changed.
    pub like: Like,
    /// Mean requests per second, all turns of all conversations counted.
    pub rate: f64,
    /// How requests follow each other; Poisson by default. Not of `rl-rollout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
    /// System prompts, each shared by the conversations of its group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<u32>,
    /// Users of each group, who ask in turn. Where no published workload says it, users come and go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users_per_group: Option<u32>,
    /// Tokens of a system prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_tokens: Option<Length>,
    /// Tokens that each turn adds to the prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<Length>,
    /// Tokens of each answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<Length>,
    /// Turns of a conversation; every prompt starts with all that went before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<Length>,
    /// Mean pause in seconds between a nominal end of an answer and the next turn (exponential).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub think_s: Option<f64>,
    /// Mean seconds between changes of all system prompts; 0 is never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_every_s: Option<f64>,
    /// A conversation ends before prompt and answer are longer than this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_context: Option<u32>,
    /// Prompts of a batch, of `rl-rollout` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompts: Option<u32>,
    /// Samples of each prompt of a batch, of `rl-rollout` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u32>,
}

/// Everything that a generator needs to know.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    /// System prompts; `None` is one per conversation.
    pub(super) groups: Option<u32>,
    /// Users of each group; `None` is that they come and go.
    pub(super) users_per_group: Option<u32>,
    pub(super) system: Lengths,
    pub(super) prompt: Lengths,
    pub(super) output: Lengths,
    pub(super) turns: Lengths,
    pub(super) think_s: f64,
    /// 0 is never.
    pub(super) change_every_s: f64,
    pub(super) max_context: u32,
    /// Prompts and samples of a batch.
    pub(super) batch: Option<(u32, u32)>,
}

/// What engines of every class of a mixed fleet can hold: the KV cache of an L40S with a model of 8
/// billion parameters is 196,880 tokens.
const MAX_CONTEXT: u32 = 120_000;

impl Shape {
    /// Single questions without a system prompt.
    fn single(prompt: Lengths, output: Lengths) -> Self {
        Self {
            groups: Some(1),
            users_per_group: None,
            system: Lengths::fixed(0),
            prompt,
            output,
            turns: Lengths::fixed(1),
            think_s: 0.0,
            change_every_s: 0.0,
            max_context: MAX_CONTEXT,
            batch: None,
        }
    }

    /// The shape of the llm-d scenarios: lengths scatter by 30 %, conversations go on. Their authors
    /// set no end to conversations; that of ten turns is ours.
    fn scenario(groups: u32, users: u32, system: u32, question: f64) -> Self {
        Self {
            groups: Some(groups),
            users_per_group: Some(users),
            system: Lengths::fixed(system),
            turns: Lengths::fixed(10),
            ..Self::single(
                Lengths::normal(question, 0.3 * question),
                Lengths::normal(1_000.0, 300.0),
            )
        }
    }

    /// What is published of `like`; where nothing is, a documented choice of ours.
    pub(super) fn of(like: Like) -> Self {
        match like {
            Like::ScenarioA => Self::scenario(6, 1_000, 1_000, 30.0),
            Like::SharedPrefix | Like::ScenarioB => Self::scenario(6, 1_000, 1_000, 3_000.0),
            Like::ScenarioC | Like::B2bSaas => Self::scenario(150, 5, 6_000, 1_200.0),
            Like::ScenarioD => Self::scenario(150, 5, 1_000, 6_200.0),
            // The standard deviations put the medians at 100 and 130.
            Like::Sharegpt => {
                Self::single(Lengths::lognormal(220.0, 430.0), Lengths::lognormal(200.0, 235.0))
            }
            // Groups, turns and pauses are chosen such that 94 % of the prompt tokens were seen before.
            Like::Production => Self {
                groups: Some(10),
                system: Lengths::fixed(1_000),
                turns: Lengths::lognormal(20.0, 10.0).within(1, 100),
                think_s: 15.0,
                change_every_s: 900.0,
                ..Self::single(
                    Lengths::lognormal(729.0, 13_550.0).within(1, 131_072),
                    Lengths::lognormal(300.0, 2_213.0).within(1, 8_192),
                )
            },
            // Ranges and means are published; spreads and pauses are ours.
            Like::CodeGeneration => Self {
                groups: None,
                system: Lengths::normal(55_000.0, 25_000.0).within(3_000, 100_000),
                turns: Lengths::lognormal(6.0, 4.0).within(2, 20),
                think_s: 20.0,
                ..Self::single(
                    Lengths::lognormal(1_500.0, 1_500.0).within(100, 10_000),
                    Lengths::lognormal(800.0, 700.0).within(50, 4_000),
                )
            },
            Like::Reasoning => Self {
                system: Lengths::fixed(250),
                ..Self::single(
                    Lengths::normal(1_000.0, 300.0),
                    Lengths::lognormal(8_000.0, 6_000.0).within(1, 32_000),
                )
            },
            Like::Agentic => Self {
                groups: Some(20),
                system: Lengths::normal(8_000.0, 2_000.0).within(1_000, 20_000),
                turns: Lengths::lognormal(20.0, 12.0).within(3, 60),
                think_s: 2.0,
                ..Self::single(
                    Lengths::lognormal(900.0, 1_200.0).within(20, 16_000),
                    Lengths::lognormal(150.0, 120.0).within(10, 1_000),
                )
            },
            Like::RlRollout => Self {
                batch: Some((32, 8)),
                ..Self::single(
                    Lengths::lognormal(500.0, 200.0),
                    Lengths::lognormal(4_000.0, 3_000.0).within(16, 16_000),
                )
            },
        }
    }
}

impl Generate {
    /// The published shape with the changes.
    pub(super) fn shape(&self) -> Shape {
        let shape = Shape::of(self.like);
        let batch = shape.batch.map(|(prompts, samples)| {
            (self.prompts.unwrap_or(prompts), self.samples.unwrap_or(samples))
        });
        Shape {
            groups: self.groups.or(shape.groups),
            users_per_group: self.users_per_group.or(shape.users_per_group),
            system: shape.system.with(self.system_tokens.as_ref()),
            prompt: shape.prompt.with(self.prompt_tokens.as_ref()),
            output: shape.output.with(self.output_tokens.as_ref()),
            turns: shape.turns.with(self.turns.as_ref()),
            think_s: self.think_s.unwrap_or(shape.think_s),
            change_every_s: self.change_every_s.unwrap_or(shape.change_every_s),
            max_context: self.max_context.unwrap_or(shape.max_context),
            batch,
        }
    }

    /// How requests follow each other.
    pub(super) fn arrivals(&self) -> Arrivals {
        self.arrivals.clone().unwrap_or_default()
    }

    /// What is wrong, as `generate.key: …`.
    pub(super) fn check(&self) -> Result<(), String> {
        self.check_keys()?;
        if !(self.rate > 0.0 && self.rate <= 1e6) {
            return Err(format!("generate.rate: must be above 0, not {}", self.rate));
        }
        self.arrivals().check("generate.arrivals")?;
        let shape = self.shape();
        let (prompts, samples) = shape.batch.unwrap_or((1, 1));
        for (key, value) in [
            ("groups", shape.groups.unwrap_or(1)),
            ("users_per_group", shape.users_per_group.unwrap_or(1)),
            ("prompts", prompts),
            ("samples", samples),
        ] {
            if value == 0 {
                return Err(format!("generate.{key}: must be above 0, not 0"));
            }
        }
        let users = u64::from(shape.groups.unwrap_or(1))
            * u64::from(shape.users_per_group.unwrap_or_default());
        if users > MOST_USERS {
            return Err(format!("generate.users_per_group: {users} users are too many"));
        }
        shape.system.check("generate.system_tokens", 0.0)?;
        shape.prompt.check("generate.prompt_tokens", 1.0)?;
        shape.output.check("generate.output_tokens", 1.0)?;
        shape.turns.check("generate.turns", 1.0)?;
        for (key, value) in [("think_s", shape.think_s), ("change_every_s", shape.change_every_s)] {
            if !(0.0..=1e6).contains(&value) {
                return Err(format!("generate.{key}: must be from 0 to 1000000, not {value}"));
            }
        }
        let (max, system) = (shape.max_context, shape.system.mean);
        if f64::from(max) <= system.min(f64::from(shape.system.max)) {
            return Err(format!(
                "generate.max_context: must be above the system prompt ({system}), not {max}"
            ));
        }
        if max < 64 {
            return Err(format!("generate.max_context: must be at least 64, not {max}"));
        }
        if prompts > 1 << 20 || samples > 1 << 19 {
            return Err(format!("generate.samples: {prompts} x {samples} samples are too many"));
        }
        Ok(())
    }

    /// Keys that the workload does not know.
    fn check_keys(&self) -> Result<(), String> {
        let name = self.like.name();
        let set: &[(&str, bool)] = if self.like == Like::RlRollout {
            &[
                ("arrivals", self.arrivals.is_some()),
                ("users_per_group", self.users_per_group.is_some()),
                ("turns", self.turns.is_some()),
                ("think_s", self.think_s.is_some()),
                ("change_every_s", self.change_every_s.is_some()),
            ]
        } else {
            &[("prompts", self.prompts.is_some()), ("samples", self.samples.is_some())]
        };
        match set.iter().find(|(_, set)| *set) {
            Some((key, _)) => Err(format!("generate.{key}: `{name}` does not have it")),
            None => Ok(()),
        }
    }

    /// For a person, in a line.
    pub(super) fn about(&self) -> String {
        let shape = self.shape();
        let (name, rate) = (self.like.name(), self.rate);
        let lengths = format!(
            "system {}, prompt {}, answer {} tokens",
            shape.system.about(),
            shape.prompt.about(),
            shape.output.about()
        );
        if let Some((prompts, samples)) = shape.batch {
            return format!(
                "{name}: {prompts} prompts x {samples} samples at once, {lengths}, \
                 {rate} requests/s in the mean"
            );
        }
        let groups = match (shape.groups, shape.users_per_group) {
            (None, _) => "a system prompt per conversation".to_owned(),
            (Some(groups), None) => format!("{groups} system prompts"),
            (Some(groups), Some(users)) => format!("{groups} groups x {users} users"),
        };
        let turns = shape.turns.about();
        let arrivals = self.arrivals().about();
        format!("{name}: {groups}, {turns} turns, {lengths}, {rate} requests/s, {arrivals}")
    }
}
