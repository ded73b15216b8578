//! The `servegen:` part of a scenario file: rates of a service over days, as `ServeGen` publishes them.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Arrival, BlockSource, Trace, TraceError,
    arrivals::{Pace, Pattern},
    draw::Draw,
    length::{Length, Lengths},
    options::Make,
    source::{self, each_line},
};

/// The columns that are read, in any order.
const COLUMNS: [&str; 3] = ["model", "t_s", "rate_rps"];
/// Streams of randomness.
const GAPS: u64 = 0;
const LENGTHS: u64 = 1;

/// The day of one model. Prompts share nothing: the traces do not tell what they have in common.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Servegen {
    /// CSV with the columns `model`, `t_s` and `rate_rps` at an even step, gzipped or not.
    pub file: String,
    /// Which model of it.
    pub model: String,
    /// Mean requests per second over the whole file; as recorded by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Recorded seconds per second: 24 makes an hour of a day, with the same rates.
    #[serde(default = "one")]
    pub time_factor: f64,
    /// Second of the record to begin with.
    #[serde(default)]
    pub from_s: f64,
    /// Coefficient of variation of the gaps (gamma).
    #[serde(default = "mean_cv")]
    pub cv: f64,
    /// Tokens of a prompt; lognormal with the mean 1,020 of the model `m-large` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens: Option<Length>,
    /// Tokens of an answer; lognormal with the mean 160 of the model `m-large` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens: Option<Length>,
}

fn one() -> f64 {
    1.0
}

/// That of the clients of `m-large`, weighted by their rates.
fn mean_cv() -> f64 {
    2.5
}

impl Servegen {
    fn lengths(&self) -> [Lengths; 2] {
        let prompt = Lengths::lognormal(1_020.0, 1_500.0).within(1, 120_000);
        let output = Lengths::lognormal(160.0, 200.0).within(1, 16_000);
        [prompt.with(self.prompt_tokens.as_ref()), output.with(self.output_tokens.as_ref())]
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let [prompt, output] = self.lengths();
        prompt.check("servegen.prompt_tokens", 1.0)?;
        output.check("servegen.output_tokens", 1.0)?;
        if let Some(rate) = self.rate.filter(|rate| !(*rate > 0.0 && *rate <= 1e6)) {
            return Err(format!("servegen.rate: must be above 0, not {rate}"));
        }
        for (key, value, range) in [
            ("cv", self.cv, 0.0..=20.0),
            ("from_s", self.from_s, 0.0..=1e9),
            ("time_factor", self.time_factor, 1e-3..=1e6),
        ] {
            if !range.contains(&value) {
                let (from, to) = range.into_inner();
                return Err(format!("servegen.{key}: must be from {from} to {to}, not {value}"));
            }
        }
        Ok(())
    }

    pub(super) fn about(&self) -> String {
        let [prompt, output] = self.lengths();
        let rate = self.rate.map_or(String::new(), |rate| format!(", {rate} requests/s"));
        format!(
            "ServeGen rates of {}{rate}, prompt {}, answer {} tokens",
            self.model,
            prompt.about(),
            output.about()
        )
    }

    /// Mean requests per second over the whole file.
    pub(super) fn mean_rate(&self, folder: &Path) -> Result<f64, TraceError> {
        Ok(self.read(folder)?.rate)
    }

    pub(super) fn trace(&self, make: &Make<'_>) -> Result<Trace, TraceError> {
        let pace = self.read(make.folder)?;
        let pace = Pace { rate: pace.rate * make.speed, ..pace };
        let [prompt, output] = self.lengths();
        let mut draw = Draw::new(make.seed, LENGTHS);
        let arrival = |(at, index)| Arrival {
            at,
            prompt_tokens: prompt.draw(&mut draw).max(1),
            output_tokens: output.draw(&mut draw).max(1),
            blocks: BlockSource::Unique(index),
            session: None,
            class: 0,
        };
        let times = pace.times(&mut Draw::new(make.seed, GAPS), make.horizon);
        let arrivals = times.into_iter().zip(0..).map(arrival).collect();
        Ok(Trace { name: format!("servegen-{}", self.model), arrivals, clamped: 0 })
    }

    /// The rates of the model around their mean, from `from_s` on and then from the start again.
    fn read(&self, folder: &Path) -> Result<Pace, TraceError> {
        let path = folder.join(&self.file);
        let file = path.display().to_string();
        let mut rows = self.rows(&path, &file)?;
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        let problem = |problem: String| TraceError::Line { file: file.clone(), line: 1, problem };
        let [first, second, ..] = rows[..] else {
            return Err(problem(format!("fewer than two rates of model `{}`", self.model)));
        };
        let step_s = second.0 - first.0;
        let recorded = rows.iter().map(|row| row.1).sum::<f64>() / rows.len() as f64;
        if step_s <= 0.0 || recorded <= 0.0 {
            return Err(problem(format!("the rates of model `{}` are no series", self.model)));
        }
        let skipped = (self.from_s / step_s) as usize % rows.len();
        rows.rotate_left(skipped);
        let factors = rows.iter().map(|row| row.1 / recorded).collect();
        let pattern = Pattern::Table { step_s: step_s / self.time_factor, factors };
        Ok(Pace { rate: self.rate.unwrap_or(recorded), cv: self.cv, pattern })
    }

    /// Seconds and rates of the model.
    fn rows(&self, path: &Path, file: &str) -> Result<Vec<(f64, f64)>, TraceError> {
        let opened = std::fs::File::open(path)
            .map_err(|source| TraceError::Open { file: file.to_owned(), source })?;
        let mut columns: Option<[usize; 3]> = None;
        let mut rows = Vec::new();
        each_line(file, source::unpacked(file, opened)?, |line, text| {
            let cells: Vec<&str> = text.split(',').map(str::trim).collect();
            let wrong = |which: usize, problem: String| TraceError::Field {
                file: file.to_owned(),
                line,
                field: COLUMNS[which],
                problem,
            };
            let Some(columns) = columns else {
                let mut found = [0; 3];
                for (which, name) in COLUMNS.iter().enumerate() {
                    found[which] = cells
                        .iter()
                        .position(|cell| cell == name)
                        .ok_or_else(|| wrong(which, "is not among the columns".to_owned()))?;
                }
                columns = Some(found);
                return Ok(());
            };
            let cell = |which: usize| cells.get(columns[which]).copied().unwrap_or_default();
            if cell(0) != self.model {
                return Ok(());
            }
            let number = |which: usize| match cell(which).parse::<f64>() {
                Ok(number) if (0.0..1e12).contains(&number) => Ok(number),
                _ => Err(wrong(which, format!("is `{}`, not a number from 0", cell(which)))),
            };
            rows.push((number(1)?, number(2)?));
            Ok(())
        })?;
        Ok(rows)
    }
}
