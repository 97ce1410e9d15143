//! Orbit mean-elements messages (CCSDS 502.0-B-3) as JSON, CSV, XML and KVN.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::elements::{ElementsError, MeanElements};
use crate::epoch::Epoch;

/// Keywords of a satellite's elements.
const KEYS: [&str; 10] = [
    "OBJECT_NAME",
    "NORAD_CAT_ID",
    "EPOCH",
    "MEAN_MOTION",
    "ECCENTRICITY",
    "INCLINATION",
    "RA_OF_ASC_NODE",
    "ARG_OF_PERICENTER",
    "MEAN_ANOMALY",
    "BSTAR",
];

type Found = Vec<(usize, MeanElements)>;

/// A message: its keywords with their values and lines.
#[derive(Default)]
struct Message {
    line: usize,
    values: BTreeMap<&'static str, (usize, String)>,
}

impl Message {
    fn put(&mut self, key: &str, line: usize, value: &str) {
        let Some(key) = KEYS.iter().find(|known| **known == key) else { return };
        if self.values.is_empty() {
            self.line = line;
        }
        self.values.insert(key, (line, value.trim().to_string()));
    }

    /// Whether a second `key` begins the next message.
    fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    fn value(&self, key: &str) -> Option<(usize, &str)> {
        self.values.get(key).map(|(line, value)| (*line, value.as_str()))
    }

    fn required(&self, key: &str, what: &str) -> Result<(usize, &str), ElementsError> {
        let name = self.value("OBJECT_NAME").map_or("a satellite", |(_, name)| name);
        let expected = format!("{key}, {what}");
        self.value(key).ok_or_else(|| {
            ElementsError::at(self.line, &format!("{name} without {key}"), &expected)
        })
    }

    fn number(&self, key: &str, what: &str) -> Result<f64, ElementsError> {
        let (line, text) = self.required(key, what)?;
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number.ok_or_else(|| ElementsError::at(line, text, &format!("{what} ({key})")))
    }

    fn elements(&self) -> Result<(usize, MeanElements), ElementsError> {
        let (line, epoch) = self.required("EPOCH", "a date and time")?;
        let read = Epoch::from_text(epoch);
        let expected = "a date and time, for example 2020-07-12T21:16:01.000416";
        let epoch = read.map_err(|_| ElementsError::at(line, epoch, expected))?;
        let name = self.value("OBJECT_NAME").filter(|(_, name)| !name.is_empty());
        let (_, name) = name.or_else(|| self.value("NORAD_CAT_ID")).unwrap_or((0, "unnamed"));
        let elements = MeanElements {
            name: name.to_string(),
            epoch,
            mean_motion: self.number("MEAN_MOTION", "revolutions per day")?,
            eccentricity: self.number("ECCENTRICITY", "a number from 0 to 1")?,
            inclination: self.number("INCLINATION", "degrees")?,
            right_ascension: self.number("RA_OF_ASC_NODE", "degrees")?,
            argument_of_perigee: self.number("ARG_OF_PERICENTER", "degrees")?,
            mean_anomaly: self.number("MEAN_ANOMALY", "degrees")?,
            bstar: self.number("BSTAR", "a drag term in 1 / Earth radii")?,
        };
        Ok((self.line, elements))
    }
}

fn all(messages: Vec<Message>) -> Result<Found, ElementsError> {
    let messages = messages.iter().filter(|message| !message.values.is_empty());
    messages.map(Message::elements).collect()
}

/// Parses a list of objects, or one object; values are numbers or texts (CelesTrak and Space-Track).
pub(crate) fn json(text: &str) -> Result<Found, ElementsError> {
    use serde_json::Value;
    let parsed: Value = serde_json::from_str(text).map_err(|error| {
        let line = error.line();
        let found = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        ElementsError::at(line.max(1), found, &format!("JSON ({error})"))
    })?;
    let objects = match parsed {
        Value::Array(objects) => objects,
        one => alloc::vec![one],
    };
    let mut messages = Vec::new();
    // The parser does not report the lines of objects: the n-th object has the line of the n-th epoch.
    let mut lines = (1..)
        .zip(text.lines())
        .flat_map(|(number, line)| line.match_indices("\"EPOCH\"").map(move |_| number));
    for object in objects {
        let line = lines.next().unwrap_or(1);
        let Value::Object(keys) = object else {
            return Err(ElementsError::at(line, &object.to_string(), "an object of an OMM"));
        };
        let mut message = Message::default();
        for (key, value) in &keys {
            match value {
                Value::Null => {}
                Value::String(text) => message.put(key, line, text),
                other => message.put(key, line, &other.to_string()),
            }
        }
        if message.values.is_empty() {
            return Err(ElementsError::at(line, "an object without EPOCH", "an object of an OMM"));
        }
        messages.push(message);
    }
    all(messages)
}

/// Parses a line of keywords, then a line per satellite (CelesTrak).
pub(crate) fn csv(text: &str) -> Result<Found, ElementsError> {
    let mut lines = (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty());
    let header: Vec<String> = lines.next().map(|(_, line)| cells(line)).unwrap_or_default();
    let mut messages = Vec::new();
    for (number, line) in lines {
        let cells = cells(line);
        if cells.len() != header.len() {
            let expected = format!("{} values between commas", header.len());
            return Err(ElementsError::at(number, line, &expected));
        }
        let mut message = Message::default();
        for (key, cell) in header.iter().zip(&cells) {
            message.put(key, number, cell);
        }
        messages.push(message);
    }
    all(messages)
}

/// Splits a line into cells, which may be quoted.
fn cells(line: &str) -> Vec<String> {
    let mut cells = Vec::new();
    let (mut cell, mut quoted) = (String::new(), false);
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(core::mem::take(&mut cell).trim().to_string()),
            other => cell.push(other),
        }
    }
    cells.push(cell.trim().to_string());
    cells
}

/// Parses lines of `KEYWORD = value`; units in brackets after the value are ignored.
pub(crate) fn kvn(text: &str) -> Result<Found, ElementsError> {
    let mut messages: Vec<Message> = Vec::new();
    let mut message = Message::default();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with("COMMENT") {
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            return Err(ElementsError::at(number, line, "KEYWORD = value"));
        };
        let (key, value) = (key.trim(), value.split('[').next().unwrap_or(value));
        if key == "CCSDS_OMM_VERS" || message.has(key) {
            messages.push(core::mem::take(&mut message));
        }
        message.put(key, number, value);
    }
    messages.push(message);
    all(messages)
}

/// Parses `<KEYWORD>value</KEYWORD>`; a message ends with `</omm>`.
pub(crate) fn xml(text: &str) -> Result<Found, ElementsError> {
    let mut messages: Vec<Message> = Vec::new();
    let mut message = Message::default();
    let (mut line, mut rest) = (1, text);
    while let Some(at) = rest.find('<') {
        let (before, from) = rest.split_at(at);
        line += before.matches('\n').count();
        let Some((tag, after)) = from.get(1..).and_then(|from| from.split_once('>')) else {
            return Err(ElementsError::at(line, from, "a tag that ends with >"));
        };
        let key = tag.split([' ', '\t', '\r', '\n']).next().unwrap_or_default();
        if key == "/omm" || message.has(key) {
            messages.push(core::mem::take(&mut message));
        }
        if KEYS.contains(&key) {
            message.put(key, line, &unescaped(after.split('<').next().unwrap_or_default()));
        }
        line += tag.matches('\n').count();
        rest = after;
    }
    messages.push(message);
    all(messages)
}

fn unescaped(text: &str) -> String {
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"[{
        "OBJECT_NAME": "ISS (ZARYA)", "OBJECT_ID": "1998-067A",
        "EPOCH": "2020-07-12T21:16:01.000416", "MEAN_MOTION": 15.49507896,
        "ECCENTRICITY": "0.0001413", "INCLINATION": 51.6461, "RA_OF_ASC_NODE": 221.2784,
        "ARG_OF_PERICENTER": 89.1723, "MEAN_ANOMALY": 280.4612, "EPHEMERIS_TYPE": 0,
        "CLASSIFICATION_TYPE": "U", "NORAD_CAT_ID": 25544, "ELEMENT_SET_NO": 999,
        "REV_AT_EPOCH": 23600, "BSTAR": -3.1515e-5, "MEAN_MOTION_DOT": -2.218e-5,
        "MEAN_MOTION_DDOT": 0, "DECAY_DATE": null
    }]"#;
    const CSV: &str = "OBJECT_NAME,OBJECT_ID,EPOCH,MEAN_MOTION,ECCENTRICITY,INCLINATION,\
        RA_OF_ASC_NODE,ARG_OF_PERICENTER,MEAN_ANOMALY,NORAD_CAT_ID,BSTAR\n\
        \"ISS (ZARYA)\",1998-067A,2020-07-12T21:16:01.000416,15.49507896,.0001413,51.6461,221.2784,\
        89.1723,280.4612,25544,-.31515E-4\n";
    const KVN: &str = "CCSDS_OMM_VERS = 2.0\nCOMMENT from a log = here\nOBJECT_NAME = ISS (ZARYA)\n\
        EPOCH = 2020-07-12T21:16:01.000416\nMEAN_MOTION = 15.49507896 [rev/day]\n\
        ECCENTRICITY = 0.0001413\nINCLINATION = 51.6461 [deg]\nRA_OF_ASC_NODE = 221.2784\n\
        ARG_OF_PERICENTER = 89.1723\nMEAN_ANOMALY = 280.4612\nBSTAR = -0.000031515\n";
    const XML: &str = "<?xml version=\"1.0\"?>\n<ndm><omm id=\"CCSDS_OMM_VERS\"><body>\n\
        <OBJECT_NAME>ISS (ZARYA)</OBJECT_NAME><EPOCH>2020-07-12T21:16:01.000416</EPOCH>\n\
        <MEAN_MOTION units=\"rev/day\">15.49507896</MEAN_MOTION><ECCENTRICITY>0.0001413</ECCENTRICITY>\n\
        <INCLINATION>51.6461</INCLINATION><RA_OF_ASC_NODE>221.2784</RA_OF_ASC_NODE>\n\
        <ARG_OF_PERICENTER>89.1723</ARG_OF_PERICENTER><MEAN_ANOMALY>280.4612</MEAN_ANOMALY>\n\
        <BSTAR>-0.000031515</BSTAR></body></omm></ndm>\n";

    #[test]
    fn every_format_gives_the_elements_of_the_tle() {
        let tle = "ISS (ZARYA)\n\
            1 25544U 98067A   20194.88612269 -.00002218  00000-0 -31515-4 0  9992\n\
            2 25544  51.6461 221.2784 0001413  89.1723 280.4612 15.49507896236008\n";
        let (_, expected) = crate::tle::read(tle).unwrap().remove(0);
        for found in [json(JSON), csv(CSV), kvn(KVN), xml(XML)] {
            let (_, mut found) = found.unwrap().remove(0);
            assert!((found.bstar - expected.bstar).abs() < 1e-15);
            found.bstar = expected.bstar;
            assert_eq!(found, expected);
        }
        let two = format!("{KVN}{KVN}");
        assert_eq!(kvn(&two).unwrap().len(), 2);
        assert_eq!(xml(&format!("{XML}{XML}")).unwrap().len(), 2);
    }

    #[test]
    fn an_error_names_its_line_and_what_was_expected() {
        let error = kvn(&KVN.replace("51.6461", "steep")).unwrap_err().to_string();
        assert_eq!(error, "line 7: found `steep`, expected degrees (INCLINATION)");
        let error = csv(&CSV.replace("25544,", "")).unwrap_err().to_string();
        assert!(error.starts_with("line 2: found"), "{error}");
        assert!(error.ends_with("expected 11 values between commas"), "{error}");
        let error = json(&JSON.replace("MEAN_MOTION\"", "MEAN_MOTIONS\"")).unwrap_err().to_string();
        let expected = "found `ISS (ZARYA) without MEAN_MOTION`, expected MEAN_MOTION, revolutions";
        assert!(error.contains(expected), "{error}");
        assert!(json("[1]").is_err());
        assert!(json("{\"a\": 1}").is_err());
        assert!(xml("<omm").is_err());
        assert!(
            json("[{").unwrap_err().to_string().starts_with("line 1: found `[{`, expected JSON")
        );
    }
}
