//! What a laboratory report is read by: loads, seeds, and every figure with its unit and direction.

mod loads;
#[cfg(test)]
pub(super) mod made;
mod measures;

pub(super) use loads::{Load, loads, seeds, shown, told_seeds};
pub(super) use measures::{
    ATTAINMENT, Better, COST, GOODPUT, HIT_RATIO, HOT_SPOT, MEASURES, Measure, Spread,
    WEIGHTED_ATTAINMENT, WORST_TENTH,
};
