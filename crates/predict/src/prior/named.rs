//! What names tell: the size of a model by the name it is served under, and the family of an accelerator
//! by any of the spellings that people and drivers use.

/// Models whose names do not tell what computes: billions of parameters, in all and active per token,
/// from their model cards.
const KNOWN: [(&str, f32, f32); 6] = [
    ("gpt-oss-120b", 117.0, 5.1),
    ("gpt-oss-20b", 21.0, 3.6),
    ("deepseek-v3", 671.0, 37.0),
    ("deepseek-r1", 671.0, 37.0),
    ("kimi-k2", 1_000.0, 32.0),
    ("minimax-m2", 230.0, 10.0),
];
/// Of `8x7b`: experts share their attention, and two of them compute a token (Mixtral 8x7B has 46.7
/// and 12.9 billion parameters, 8x22B has 141 and 39).
const SHARED: f32 = 0.82;
const TWO_ACTIVE: f32 = 0.9;

/// Size and weights of a model, as far as its name tells them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Named {
    /// Billions of parameters.
    pub(crate) params_b: f32,
    /// Billions of parameters that compute one token.
    pub(crate) active_b: f32,
    /// Format of the weights: `bf16`, `fp8` or `4bit`.
    pub(crate) weights: Option<&'static str>,
}

impl Named {
    /// What `name` tells; `None` if it tells no size.
    pub(crate) fn of(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let weights = words(&name).find_map(weights_of);
        let made = |params_b, active_b| Some(Self { params_b, active_b, weights });
        let size = words(&name).find_map(size_of);
        let distilled = name.contains("distill");
        if let Some((_, all, active)) =
            KNOWN.iter().find(|(known, _, _)| name.contains(known) && !distilled)
        {
            return made(*all, *active);
        }
        let active = words(&name).find_map(|word| billions(word.strip_prefix('a')?));
        match (size, active) {
            (Some((all, _)), Some(active)) if active < all => made(all, active),
            (Some((all, active)), _) => made(all, active),
            (None, Some(active)) => made(active, active),
            (None, None) => None,
        }
    }
}

/// Runs of letters, digits and points.
fn words(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_ascii_alphanumeric() && c != '.')
}

/// Parameters of `8b`, `0.5b`, `135m` or `8x7b`, in all and active, in billions.
fn size_of(word: &str) -> Option<(f32, f32)> {
    if let Some((experts, each)) = word.split_once('x') {
        let (experts, each) = (experts.parse::<u16>().ok()?, billions(each)?);
        let active = f32::from(experts.min(2)) * each * TWO_ACTIVE;
        return Some((f32::from(experts) * each * SHARED, active));
    }
    billions(word).map(|size| (size, size))
}

fn billions(word: &str) -> Option<f32> {
    let unit = if word.ends_with('m') { 1e-3 } else { 1.0 };
    let number = word.strip_suffix(['b', 'm'])?;
    if !number.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    number.parse::<f32>().ok().map(|number| number * unit).filter(|size| *size > 0.0)
}

fn weights_of(word: &str) -> Option<&'static str> {
    match word {
        "bf16" | "fp16" => Some("bf16"),
        "fp8" | "int8" | "w8a8" => Some("fp8"),
        "fp4" | "nvfp4" | "mxfp4" | "int4" | "awq" | "gptq" | "w4a16" | "4bit" => Some("4bit"),
        _ => None,
    }
}

/// Whether the accelerator called `name` is of `family`, such as `h100`, in lower case. A slice of a
/// card is not: it has a part of its speed.
pub(crate) fn is_of(name: &str, family: &str) -> bool {
    let parts = || name.split(|c: char| !c.is_ascii_alphanumeric());
    let fits = |part: &str| {
        let Some(head) = part.get(..family.len()) else { return false };
        let rest = &part[family.len()..];
        head.eq_ignore_ascii_case(family) && (rest.is_empty() || is_form(rest))
    };
    !family.is_empty() && parts().any(fits) && !parts().any(|part| part.eq_ignore_ascii_case("mig"))
}

/// What is written behind a family without a separator: its form, or its memory.
fn is_form(rest: &str) -> bool {
    const FORMS: [&str; 5] = ["sxm", "pcie", "nvl", "hbm", "oam"];
    let starts =
        |form: &&str| rest.get(..form.len()).is_some_and(|head| head.eq_ignore_ascii_case(form));
    FORMS.iter().any(starts)
}

/// The family that `accelerator` names first: `h100` of `H100-SXM`.
pub(crate) fn family(accelerator: &str) -> String {
    let first = accelerator.split(|c: char| !c.is_ascii_alphanumeric()).next();
    first.unwrap_or_default().to_ascii_lowercase()
}

/// The tensor parallelism that an accelerator class tells: 4 of `H100-SXM tp4`.
pub(crate) fn parallelism(accelerator: &str) -> Option<u32> {
    let parts = accelerator.split(|c: char| !c.is_ascii_alphanumeric());
    let number = |part: &str| {
        let is_tp = part.get(..2).is_some_and(|head| head.eq_ignore_ascii_case("tp"));
        is_tp.then(|| part[2..].parse().ok()).flatten()
    };
    parts.into_iter().find_map(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_names_as_people_write_them() {
        for (name, all, active) in [
            ("meta-llama/Llama-3.1-8B-Instruct", 8.0, 8.0),
            ("Qwen3-32B", 32.0, 32.0),
            ("llama-3.1-70b", 70.0, 70.0),
            ("llama3.1:70b", 70.0, 70.0),
            ("Qwen/Qwen2.5-0.5B", 0.5, 0.5),
            ("HuggingFaceTB/SmolLM2-135M-Instruct", 0.135, 0.135),
            ("Qwen2.5-7B-Instruct-1M", 7.0, 7.0),
            ("Qwen3-30B-A3B", 30.0, 3.0),
            ("Qwen/Qwen3-235B-A22B-FP8", 235.0, 22.0),
            ("openai/gpt-oss-120b", 117.0, 5.1),
            ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", 8.0, 8.0),
            ("deepseek-ai/DeepSeek-R1", 671.0, 37.0),
        ] {
            let named = Named::of(name).unwrap();
            assert!((named.params_b - all).abs() < 1e-3, "{name}: {named:?}");
            assert!((named.active_b - active).abs() < 1e-3, "{name}: {named:?}");
        }
        let mixtral = Named::of("mistralai/Mixtral-8x7B-Instruct-v0.1").unwrap();
        assert!((mixtral.params_b - 46.7).abs() < 1.0, "{mixtral:?}");
        assert!((mixtral.active_b - 12.9).abs() < 0.5, "{mixtral:?}");
        for name in ["", "default", "my-model", "gpt-4", "b", "llama-v2"] {
            assert_eq!(Named::of(name), None, "{name}");
        }
    }

    #[test]
    fn weights_are_read_from_names() {
        let weights = |name| Named::of(name).unwrap().weights;
        assert_eq!(weights("Llama-3.1-70B-Instruct-FP8"), Some("fp8"));
        assert_eq!(weights("Llama-3.1-8B-Instruct-AWQ-INT4"), Some("4bit"));
        assert_eq!(weights("Llama-3.1-8B"), None);
    }

    #[test]
    fn an_accelerator_is_known_by_any_of_its_names() {
        for name in
            ["H100-SXM", "NVIDIA H100 80GB HBM3", "h100_sxm", "nvidia-h100-80gb", "H100SXM5"]
        {
            assert!(is_of(name, "h100"), "{name}");
        }
        assert!(
            is_of("NVIDIA-A100-SXM4-80GB", "a100") && is_of("AMD Instinct MI300X OAM", "mi300x")
        );
        for (name, family) in [
            ("L40S", "l4"),
            ("L40S", "l40"),
            ("GH200", "h200"),
            ("A100", "a10"),
            ("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "h100"),
            ("", "h100"),
            ("unknown", "h100"),
        ] {
            assert!(!is_of(name, family), "{name} {family}");
        }
        assert_eq!(family("A100-SXM-80"), "a100");
    }

    #[test]
    fn the_parallelism_stands_behind_the_accelerator() {
        assert_eq!(parallelism("H100-SXM tp4"), Some(4));
        assert_eq!(parallelism("h100_TP8"), Some(8));
        assert_eq!(parallelism("H100-SXM"), None);
    }
}
