//! How long the answers of each tenant or route are: bounded, and near the model's own until a scope has
//! answers enough.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use crate::outputs::{Expected, Lengths, newest_of};

/// Most scopes of one model; the one that has been without an answer for longest goes.
const MAX_SCOPES: usize = 256;
/// Newest answers of a scope that lengths are read from.
const WINDOW: usize = 128;
/// Answers from which a scope stands alone.
const ENOUGH: usize = 32;

/// The distributions by scope, ready to be asked.
pub(crate) type ByScope = BTreeMap<Arc<str>, Arc<Lengths>>;

/// What is expected of an answer in `scope` that may give at most `max_tokens`, where `of_model` is
/// expected of any answer of the model.
pub(crate) fn expected(
    of_model: Expected,
    scopes: &ByScope,
    scope: Option<&str>,
    max_tokens: Option<u32>,
) -> Expected {
    let Some(own) = scope.and_then(|scope| scopes.get(scope)) else { return of_model };
    let share = own.answers().min(ENOUGH) as f32 / ENOUGH as f32;
    of_model.blend(own.expected(max_tokens), share)
}

/// The scopes of one model as they learn.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(from = "Vec<SavedScope>", into = "Vec<SavedScope>")]
pub(crate) struct Scopes {
    by_name: BTreeMap<Arc<str>, Scope>,
    /// Answers so far: the clock by which the least recently used is found.
    turn: u64,
    /// Those that have changed since they were served.
    stale: BTreeSet<Arc<str>>,
    served: Arc<ByScope>,
}

#[derive(Clone, Debug, Default)]
struct Scope {
    used: u64,
    newest: VecDeque<u32>,
}

#[derive(Debug, Deserialize, Serialize)]
struct SavedScope {
    name: String,
    used: u64,
    newest: VecDeque<u32>,
}

impl Scopes {
    /// An answer of `tokens` output tokens has ended in `scope`.
    pub(crate) fn push(&mut self, scope: &Arc<str>, tokens: u32) {
        self.turn += 1;
        if !self.by_name.contains_key(scope) && self.by_name.len() >= MAX_SCOPES {
            self.drop_oldest();
        }
        let of = self.by_name.entry(Arc::clone(scope)).or_default();
        of.used = self.turn;
        if of.newest.len() == WINDOW {
            of.newest.pop_front();
        }
        of.newest.push_back(tokens);
        self.stale.insert(Arc::clone(scope));
    }

    /// Folds in the newest answers of every scope of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (name, theirs) in &other.by_name {
            if !self.by_name.contains_key(name) && self.by_name.len() >= MAX_SCOPES {
                self.drop_oldest();
            }
            let mine = self.by_name.entry(Arc::clone(name)).or_default();
            mine.newest = newest_of(&mine.newest, &theirs.newest, WINDOW);
            mine.used = mine.used.max(theirs.used);
            self.turn = self.turn.max(mine.used);
            self.stale.insert(Arc::clone(name));
        }
    }

    fn drop_oldest(&mut self) {
        let oldest = self.by_name.iter().min_by_key(|(_, scope)| scope.used);
        if let Some(name) = oldest.map(|(name, _)| Arc::clone(name)) {
            self.by_name.remove(&name);
            self.stale.insert(name);
        }
    }

    /// The distributions now.
    pub(crate) fn served(&mut self) -> Arc<ByScope> {
        if !self.stale.is_empty() {
            let served = Arc::make_mut(&mut self.served);
            for name in std::mem::take(&mut self.stale) {
                match self.by_name.get(&name) {
                    Some(of) => {
                        served.insert(name, Arc::new(Lengths::of(of.newest.iter().copied())));
                    }
                    None => drop(served.remove(&name)),
                }
            }
        }
        Arc::clone(&self.served)
    }
}

impl From<Vec<SavedScope>> for Scopes {
    fn from(saved: Vec<SavedScope>) -> Self {
        let mut scopes = Self::default();
        for SavedScope { name, used, mut newest } in saved.into_iter().take(MAX_SCOPES) {
            let name: Arc<str> = name.into();
            newest.truncate(WINDOW);
            scopes.turn = scopes.turn.max(used);
            scopes.stale.insert(Arc::clone(&name));
            scopes.by_name.insert(name, Scope { used, newest });
        }
        scopes
    }
}

impl From<Scopes> for Vec<SavedScope> {
    fn from(scopes: Scopes) -> Self {
        let saved = |(name, Scope { used, newest }): (Arc<str>, Scope)| SavedScope {
            name: name.to_string(),
            used,
            newest,
        };
        scopes.by_name.into_iter().map(saved).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_model(tokens: u32) -> Lengths {
        Lengths::of(std::iter::repeat_n(tokens, 64))
    }

    fn mean(scopes: &mut Scopes, scope: &str, max_tokens: Option<u32>) -> f32 {
        let of_model = of_model(100).expected(max_tokens);
        expected(of_model, &scopes.served(), Some(scope), max_tokens).mean
    }

    #[test]
    fn a_scope_moves_from_its_models_lengths_to_its_own() {
        let mut scopes = Scopes::default();
        let team: Arc<str> = "team".into();
        assert!((mean(&mut scopes, "team", None) - 100.0).abs() < 0.1);
        let mut before = 100.0;
        for _ in 0..ENOUGH {
            scopes.push(&team, 900);
            let now = mean(&mut scopes, "team", None);
            assert!(now > before && now < 900.1, "{before} {now}");
            before = now;
        }
        assert!((before - 900.0).abs() < 0.1, "{before}");
        assert!((mean(&mut scopes, "team", Some(300)) - 300.0).abs() < 0.1);
        assert!((mean(&mut scopes, "another", None) - 100.0).abs() < 0.1);
        let blended = expected(of_model(100).expected(None), &scopes.served(), Some("team"), None);
        assert!(blended.spread.iter().all(|length| (length - 900.0).abs() < 0.1), "{blended:?}");
    }

    #[test]
    fn the_scope_without_an_answer_for_longest_makes_room() {
        let mut scopes = Scopes::default();
        let name = |at: usize| -> Arc<str> { format!("t{at}").into() };
        for at in 0..MAX_SCOPES {
            scopes.push(&name(at), 7);
        }
        scopes.push(&name(0), 7);
        scopes.push(&name(MAX_SCOPES), 7);
        let served = scopes.served();
        assert_eq!(served.len(), MAX_SCOPES);
        assert!(served.contains_key("t0") && !served.contains_key("t1"));
        for at in 0..5_000 {
            scopes.push(&name(at), 7);
        }
        assert_eq!(scopes.served().len(), MAX_SCOPES);
    }

    #[test]
    fn what_is_saved_goes_on_as_it_was() {
        let mut scopes = Scopes::default();
        for at in 0..400_u32 {
            scopes.push(&format!("t{}", at % 300).into(), at);
        }
        let saved = serde_json::to_string(&scopes).unwrap();
        let mut restored: Scopes = serde_json::from_str(&saved).unwrap();
        for scopes in [&mut scopes, &mut restored] {
            scopes.push(&"new".into(), 5);
        }
        let served = |scopes: &mut Scopes| format!("{:?}", scopes.served());
        assert_eq!(served(&mut restored), served(&mut scopes));
    }
}
