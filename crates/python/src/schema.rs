//! JSON Schema of scenario and gateway files.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
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
        kinds.push(typed(py, name)?);
    }
    if shape.boolean {
        kinds.push(typed(py, "boolean")?);
    }
    if let Some(element) = &shape.list {
        let list = typed(py, "array")?;
        list.set_item("items", schema_of(py, element)?)?;
        kinds.push(list);
    }
    match &shape.table {
        None => {}
        Some(TableShape::Any) => kinds.push(typed(py, "object")?),
        Some(TableShape::Keys(keys)) => kinds.push(of_keys(py, keys, None)?),
        Some(TableShape::Named(each)) => {
            let table = typed(py, "object")?;
            table.set_item("additionalProperties", schema_of(py, each)?)?;
            kinds.push(table);
        }
        Some(TableShape::Choice { tag, options, custom }) => {
            for (value, keys) in options {
                kinds.push(of_keys(py, keys, Some((tag, value)))?);
            }
            if *custom {
                let table = typed(py, "object")?;
                let properties = PyDict::new(py);
                properties.set_item(tag, matching(py, CUSTOM_NAMES)?)?;
                table.set_item("properties", properties)?;
                table.set_item("required", PyList::new(py, [tag])?)?;
                kinds.push(table);
            }
        }
    }
    let schema = match kinds.len() {
        1 => kinds.remove(0),
        0 => PyDict::new(py),
        _ => {
            let any = PyDict::new(py);
            any.set_item("anyOf", PyList::new(py, kinds)?)?;
            any
        }
    };
    if !shape.expected.is_empty() {
        schema.set_item("description", &shape.expected)?;
    }
    Ok(schema)
}

fn typed<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyDict>> {
    let schema = PyDict::new(py);
    schema.set_item("type", name)?;
    Ok(schema)
}

fn of_text<'py>(py: Python<'py>, text: &TextShape) -> PyResult<Bound<'py, PyDict>> {
    let (names, others) = match text {
        TextShape::Any => return typed(py, "string"),
        TextShape::Quantity { units, signed } => return of_quantity(py, units, *signed),
        TextShape::Names { names, others } => (names, others),
    };
    let schema = PyDict::new(py);
    schema.set_item("enum", PyList::new(py, names)?)?;
    let Some(pattern) = others else { return Ok(schema) };
    let either = PyDict::new(py);
    either.set_item("anyOf", PyList::new(py, [schema, matching(py, pattern)?])?)?;
    Ok(either)
}

/// Returns the schema of a number with one of these units.
fn of_quantity<'py>(py: Python<'py>, units: &[&str], signed: bool) -> PyResult<Bound<'py, PyDict>> {
    let schema = typed(py, "string")?;
    let sign = if signed { "[+-]?" } else { "\\+?" };
    let number = r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?";
    let pattern = format!(r"^\s*{sign}{number}\s*({})\s*$", units.join("|"));
    schema.set_item("pattern", pattern)?;
    Ok(schema)
}

/// Returns the schema of texts that match a regular expression.
fn matching<'py>(py: Python<'py>, pattern: &str) -> PyResult<Bound<'py, PyDict>> {
    let schema = typed(py, "string")?;
    schema.set_item("pattern", pattern)?;
    Ok(schema)
}

/// Returns the schema of a table with these keys; `tag` is the key with a fixed value.
fn of_keys<'py>(
    py: Python<'py>,
    keys: &Keys,
    tag: Option<(&String, &String)>,
) -> PyResult<Bound<'py, PyDict>> {
    let table = typed(py, "object")?;
    let properties = PyDict::new(py);
    if let Some((tag, value)) = tag {
        let fixed = PyDict::new(py);
        fixed.set_item("const", value)?;
        properties.set_item(tag, fixed)?;
        table.set_item("required", PyList::new(py, [tag])?)?;
    }
    for (key, shape) in keys {
        properties.set_item(key, schema_of(py, shape)?)?;
    }
    table.set_item("properties", properties)?;
    table.set_item("additionalProperties", false)?;
    Ok(table)
}
