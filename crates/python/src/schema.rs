//! JSON Schema of scenario and gateway files.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use skybraid_scenario::schema::{
    CUSTOM_NAMES, Keys, NumberShape, Shape, TableShape, TextShape, gateway_schema, scenario_schema,
};

use crate::error::bad_input;

/// Returns the JSON Schema of a kind of file, `scenario` or `gateway`.
#[pyfunction]
pub fn file_schema<'py>(py: Python<'py>, kind: &str) -> PyResult<Bound<'py, PyDict>> {
    let shape = match kind {
        "scenario" => scenario_schema(),
        "gateway" => gateway_schema(),
        _ => return Err(bad_input(format!("found `{kind}`, expected scenario or gateway"))),
    };
    schema_of(py, &shape)
}

fn schema_of<'py>(py: Python<'py>, shape: &Shape) -> PyResult<Bound<'py, PyDict>> {
    let mut kinds = Vec::new();
    if let Some(text) = &shape.text {
        kinds.push(of_text(py, text)?);
    }
    if let Some(number) = shape.number {
        let name = match number {
            NumberShape::Integer => "integer",
            NumberShape::Any => "number",
        };
        kinds.push(dict!(py, "type": name));
    }
    if shape.boolean {
        kinds.push(dict!(py, "type": "boolean"));
    }
    if let Some(element) = &shape.list {
        kinds.push(dict!(py, "type": "array", "items": schema_of(py, element)?));
    }
    match &shape.table {
        None => {}
        Some(TableShape::Any) => kinds.push(dict!(py, "type": "object")),
        Some(TableShape::Keys(keys)) => kinds.push(of_keys(py, keys, None)?),
        Some(TableShape::Named(each)) => {
            let each = schema_of(py, each)?;
            kinds.push(dict!(py, "type": "object", "additionalProperties": each));
        }
        Some(TableShape::Choice { tag, options, custom }) => {
            for (value, keys) in options {
                kinds.push(of_keys(py, keys, Some((tag, value)))?);
            }
            if *custom {
                let properties = PyDict::new(py);
                properties.set_item(tag, matching(py, CUSTOM_NAMES)?)?;
                kinds.push(dict!(
                    py, "type": "object", "properties": properties, "required": [tag],
                ));
            }
        }
    }
    let schema = match kinds.len() {
        1 => kinds.remove(0),
        0 => PyDict::new(py),
        _ => dict!(py, "anyOf": kinds),
    };
    if !shape.expected.is_empty() {
        schema.set_item("description", &shape.expected)?;
    }
    Ok(schema)
}

fn of_text<'py>(py: Python<'py>, text: &TextShape) -> PyResult<Bound<'py, PyDict>> {
    let (names, others) = match text {
        TextShape::Any => return Ok(dict!(py, "type": "string")),
        TextShape::Quantity { units, signed } => return of_quantity(py, units, *signed),
        TextShape::Names { names, others } => (names, others),
    };
    let schema = dict!(py, "enum": names);
    let Some(pattern) = others else { return Ok(schema) };
    Ok(dict!(py, "anyOf": [schema, matching(py, pattern)?]))
}

/// Returns the schema of a number with one of these units.
fn of_quantity<'py>(py: Python<'py>, units: &[&str], signed: bool) -> PyResult<Bound<'py, PyDict>> {
    let sign = if signed { "[+-]?" } else { "\\+?" };
    let number = r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?";
    matching(py, &format!(r"^\s*{sign}{number}\s*({})\s*$", units.join("|")))
}

/// Returns the schema of texts that match a regular expression.
fn matching<'py>(py: Python<'py>, pattern: &str) -> PyResult<Bound<'py, PyDict>> {
    Ok(dict!(py, "type": "string", "pattern": pattern))
}

/// Returns the schema of a table with these keys; `tag` is the key with a fixed value.
fn of_keys<'py>(
    py: Python<'py>,
    keys: &Keys,
    tag: Option<(&String, &String)>,
) -> PyResult<Bound<'py, PyDict>> {
    let table = dict!(py, "type": "object");
    let properties = PyDict::new(py);
    if let Some((tag, value)) = tag {
        properties.set_item(tag, dict!(py, "const": value))?;
        table.set_item("required", [tag])?;
    }
    for (key, shape) in keys {
        properties.set_item(key, schema_of(py, shape)?)?;
    }
    table.set_item("properties", properties)?;
    table.set_item("additionalProperties", false)?;
    Ok(table)
}
