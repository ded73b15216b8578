//! The priors that a configuration names: those that come with the program, none, or a file.

use std::{fs, sync::Arc};

use anyhow::Context as _;
use predict::{PriorSource, Priors};

/// Made by the command in `models/README.md`.
const BUILTIN: &str = include_str!("../../../models/priors.jsonl");
/// What the built-in ones are called in errors.
const BUILTIN_NAME: &str = "models/priors.jsonl (built in)";

/// Reads what `source` names.
pub(crate) fn load(source: &PriorSource) -> anyhow::Result<Arc<Priors>> {
    let priors = match source {
        PriorSource::None => Priors::default(),
        PriorSource::Builtin => Priors::parse(BUILTIN, BUILTIN_NAME)?,
        PriorSource::File(path) => {
            let name = path.display().to_string();
            let text = fs::read_to_string(path)
                .with_context(|| format!("cannot read priors from `{name}`"))?;
            Priors::parse(&text, &name)?
        }
    };
    Ok(Arc::new(priors))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_priors_fit_this_program_and_know_every_profile() {
        let priors = load(&PriorSource::Builtin).unwrap();
        for profile in sim::Profile::all() {
            let class = format!("{} tp{}", profile.gpu, profile.tp);
            let model = format!("{}-{}", profile.model, profile.weights);
            let fit = priors.find(&model, &types::Accelerator::new(&class)).unwrap();
            assert_eq!(fit.scale.to_bits(), 1.0_f32.to_bits(), "{class} {model}");
            assert_eq!(fit.prior.weights.as_ref(), Some(&profile.weights), "{class} {model}");
        }
    }
}
