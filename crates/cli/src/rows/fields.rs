//! One row as names and values, whichever format it came in.

use std::collections::HashMap;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// A value of one column.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    /// A number.
    Number(f64),
    /// A text, which may spell a number.
    Text(String),
    /// A list, as JSON.
    List(String),
    /// Something else, by what it is.
    Other(&'static str),
}

/// What is wrong with one column of a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Problem {
    pub(super) field: String,
    pub(super) problem: String,
}

impl Problem {
    pub(super) fn new(field: &str, problem: impl Into<String>) -> Self {
        Self { field: field.to_owned(), problem: problem.into() }
    }
}

/// The columns of one row that have a value.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(HashMap<String, Cell>);

impl Fields {
    /// The members of `object`; those of an object in it are called `outer.inner`.
    pub(super) fn of_json(object: Map<String, Value>) -> Self {
        let mut fields = Self::default();
        for (name, value) in object {
            match value {
                Value::Object(inner) => {
                    for (key, value) in inner {
                        fields.put(&format!("{name}.{key}"), cell(value));
                    }
                }
                value => fields.put(&name, cell(value)),
            }
        }
        fields
    }

    pub(super) fn put(&mut self, name: &str, cell: Option<Cell>) {
        if let Some(cell) = cell {
            self.0.insert(name.to_owned(), cell);
        }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The number called `name`, if there is one.
    pub(super) fn number(&self, name: &str) -> Result<Option<f64>, Problem> {
        let number = match self.0.get(name) {
            None => return Ok(None),
            Some(Cell::Number(number)) => *number,
            Some(Cell::Text(text)) => text
                .trim()
                .parse()
                .map_err(|_| Problem::new(name, format!("is `{text}`, not a number")))?,
            Some(Cell::List(_)) => return Err(Problem::new(name, "is a list, not a number")),
            Some(Cell::Other(what)) => {
                return Err(Problem::new(name, format!("is {what}, not a number")));
            }
        };
        if number.is_finite() {
            return Ok(Some(number));
        }
        Err(Problem::new(name, "is not finite"))
    }

    /// The number called `name`, which must be there.
    pub(super) fn required(&self, name: &str) -> Result<f64, Problem> {
        self.number(name)?.ok_or_else(|| Problem::new(name, "is missing"))
    }

    /// The number called `name`, which must be there and in `0.0..=highest`.
    pub(super) fn within(&self, name: &str, highest: f64) -> Result<f64, Problem> {
        let number = self.required(name)?;
        if (0.0..=highest).contains(&number) {
            return Ok(number);
        }
        Err(Problem::new(name, format!("is {number}, not in 0..={highest}")))
    }

    /// The list called `name`, empty where there is none. Where cells are text, it is JSON.
    pub(super) fn list<T: DeserializeOwned>(&self, name: &str) -> Result<Vec<T>, Problem> {
        match self.0.get(name) {
            None => Ok(Vec::new()),
            Some(Cell::List(json) | Cell::Text(json)) => serde_json::from_str(json)
                .map_err(|error| Problem::new(name, format!("is no such list: {error}"))),
            Some(_) => Err(Problem::new(name, "is not a list")),
        }
    }

    /// The text called `name`, which must be there.
    pub(super) fn text(&self, name: &str) -> Result<&str, Problem> {
        match self.0.get(name) {
            Some(Cell::Text(text)) => Ok(text),
            Some(_) => Err(Problem::new(name, "is not a text")),
            None => Err(Problem::new(name, "is missing")),
        }
    }
}

fn cell(value: Value) -> Option<Cell> {
    match value {
        Value::Null => None,
        Value::Number(number) => number.as_f64().map(Cell::Number),
        Value::String(text) => Some(Cell::Text(text)),
        Value::Bool(_) => Some(Cell::Other("a truth value")),
        Value::Array(_) => Some(Cell::List(value.to_string())),
        Value::Object(_) => Some(Cell::Other("an object")),
    }
}
