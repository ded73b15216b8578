//! Text without meaning: one word per token, the same for the same prompt.

/// What answers are made of; plain ASCII, so nothing needs escaping.
const WORDS: [&str; 32] = [
    "river", "stone", "quiet", "seven", "garden", "light", "under", "north", "paper", "winter",
    "bridge", "music", "early", "ocean", "silver", "forest", "window", "letter", "yellow",
    "signal", "harbor", "copper", "simple", "travel", "market", "orange", "circle", "summer",
    "number", "story", "planet", "button",
];

/// Appends token `index` of the answer with this `seed`.
pub(super) fn push_word(out: &mut String, seed: u64, index: u32) {
    if index > 0 {
        out.push(' ');
    }
    let mixed = (seed ^ u64::from(index)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    out.push_str(WORDS[(mixed >> 59) as usize]);
}
