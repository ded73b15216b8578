//! Batches of samples, as reinforcement learning asks for them: many at one instant, then nothing.

use std::time::Duration;

use super::{Arrival, BlockSource, Part, draw::Draw, generate::Shape};

/// Names a piece that all prompts share.
const SYSTEM: u64 = 1 << 63;
/// Streams of randomness: one per prompt.
const PROMPT: u64 = 1 << 34;

/// The arrivals before `horizon` at a mean of `rate` per second. The first batch comes after half a
/// period, so that any horizon holds the mean rate as nearly as whole batches can.
pub(super) fn arrivals(shape: &Shape, rate: f64, seed: u64, horizon: Duration) -> Vec<Arrival> {
    let (prompts, samples) = shape.batch.unwrap_or((1, 1));
    let period_s = f64::from(prompts) * f64::from(samples) / rate;
    let mut arrivals = Vec::new();
    for batch in 0_u32.. {
        let at = Duration::from_nanos(((f64::from(batch) + 0.5) * period_s * 1e9) as u64);
        if at >= horizon {
            break;
        }
        for prompt in 0..prompts {
            let number = u64::from(batch) * u64::from(prompts) + u64::from(prompt);
            let mut draw = Draw::new(seed, PROMPT + number);
            let system_tokens = shape.system.draw(&mut draw).min(shape.max_context / 2);
            let own_tokens = shape.prompt.draw(&mut draw).clamp(1, shape.max_context / 4);
            let prompt_tokens = system_tokens + own_tokens;
            for sample in 0..samples {
                let most = shape.max_context - prompt_tokens;
                let output_tokens = shape.output.draw(&mut draw).clamp(1, most.max(1));
                let answer = (number << 20) + u64::from(sample) + 1;
                let parts = [
                    Part { content: SYSTEM, tokens: system_tokens },
                    Part { content: number << 20, tokens: own_tokens },
                    Part { content: answer, tokens: output_tokens },
                ];
                arrivals.push(Arrival {
                    at,
                    prompt_tokens,
                    output_tokens,
                    blocks: BlockSource::Parts(parts.into()),
                    session: None,
                    class: 0,
                });
            }
        }
    }
    arrivals
}
