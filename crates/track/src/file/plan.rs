//! Mission plans of QGroundControl: the places that a vehicle flies to, from its home.
//!
//! Actions, waits and changes of speed are ignored. Heights above terrain are used as heights above home, since the
//! file has no terrain.
//!
//! Sources: QGroundControl developer guide, "Plan File Format" (version 1, mission version 2); MAVLink common message
//! set, `MAV_CMD`, `MAV_FRAME`, `MAV_TYPE`.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Deserialize;
use skybraid_units::{Speed, defaults};

use super::{Points, ReadError};
use crate::position::{Position, PositionError};

const RETURN_TO_LAUNCH: u16 = 20;
const DO_JUMP: u16 = 177;

/// Commands whose parameters 5 to 7 are a place to fly to: way points, loitering, landing and take-off.
const FLOWN_TO: [u16; 10] = [16, 17, 18, 19, 21, 22, 31, 82, 84, 85];

/// Frames whose altitude is above mean sea level: `MAV_FRAME_GLOBAL` and `MAV_FRAME_GLOBAL_INT`.
const ABOVE_SEA: [u8; 2] = [0, 5];

/// Types of vehicle that fly at the plan's hover speed: helicopters and multicopters.
const HOVERING: [u8; 10] = [2, 3, 4, 13, 14, 15, 29, 35, 43, 44];

#[derive(Deserialize)]
struct Plan {
    mission: Mission,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mission {
    items: Vec<Item>,
    planned_home_position: [f64; 3],
    #[serde(default)]
    vehicle_type: u8,
    cruise_speed: Option<f64>,
    hover_speed: Option<f64>,
}

/// Simple item, or a complex one: a survey's items, as QGroundControl has computed them, or a landing pattern.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    #[serde(flatten)]
    simple: Option<Simple>,
    complex_item_type: Option<String>,
    #[serde(rename = "TransectStyleComplexItem")]
    transects: Option<Transects>,
    #[serde(alias = "loiterCoordinate")]
    landing_approach_coordinate: Option<[f64; 3]>,
    land_coordinate: Option<[f64; 3]>,
    #[serde(default = "relative")]
    altitudes_are_relative: bool,
}

defaults! { relative: bool = true; }

#[derive(Deserialize)]
struct Transects {
    #[serde(rename = "Items")]
    items: Vec<Simple>,
}

#[derive(Deserialize)]
struct Simple {
    command: u16,
    frame: u8,
    params: [Option<f64>; 7],
}

pub(super) fn read(text: &str) -> Result<Points, ReadError> {
    let plan: Plan = serde_json::from_str(text).map_err(|error| {
        let words = error.to_string();
        let problem = words.rsplit_once(" at line ").map_or(words.as_str(), |(problem, _)| problem);
        ReadError::Syntax {
            line: error.line().max(1),
            problem: format!("{problem}, expected a plan of QGroundControl"),
        }
    })?;
    let mission = plan.mission;
    let [latitude, longitude, altitude] = mission.planned_home_position;
    let home = Position::new(latitude, longitude, altitude).map_err(|error| ReadError::Part {
        place: "mission.plannedHomePosition".into(),
        problem: error.to_string(),
    })?;
    let mut route = Route { home, points: alloc::vec![home] };
    for (at, item) in mission.items.iter().enumerate() {
        let add =
            |problem: String| ReadError::Part { place: format!("mission.items[{at}]"), problem };
        route.add(item).map_err(add)?;
    }
    if route.points.len() == 1 {
        return Err(ReadError::Empty { expected: "a mission with way points" });
    }
    let hovers = HOVERING.contains(&mission.vehicle_type);
    let pace = if hovers { mission.hover_speed } else { mission.cruise_speed };
    let pace = pace.filter(|pace| *pace > 0.0).map(Speed::from_metres_per_second);
    Ok(Points::Bare(route.points, pace))
}

struct Route {
    home: Position,
    /// At least the home.
    points: Vec<Position>,
}

impl Route {
    /// Adds the places of an item; an error says what was found and expected.
    fn add(&mut self, item: &Item) -> Result<(), String> {
        match item {
            Item { transects: Some(survey), .. } => {
                survey.items.iter().try_for_each(|simple| self.add_simple(simple))
            }
            Item {
                landing_approach_coordinate: Some(approach),
                land_coordinate: Some(land),
                ..
            } => {
                let above = if item.altitudes_are_relative { self.home.altitude() } else { 0.0 };
                [approach, land].into_iter().try_for_each(|[latitude, longitude, altitude]| {
                    self.fly_to(Position::new(*latitude, *longitude, above + altitude))
                })
            }
            Item { complex_item_type: Some(kind), .. } => Err(format!(
                "found `{kind}`, expected a survey, a corridor scan or a landing pattern"
            )),
            Item { simple: Some(simple), .. } => self.add_simple(simple),
            Item { .. } => {
                Err("found no `command` with `frame` and 7 `params`, expected them".into())
            }
        }
    }

    fn add_simple(&mut self, item: &Simple) -> Result<(), String> {
        let last = self.points.last().copied().unwrap_or(self.home);
        let [_, _, _, _, latitude, longitude, altitude] = item.params;
        match item.command {
            RETURN_TO_LAUNCH => self.fly_to(self.home.at_altitude(last.altitude())),
            DO_JUMP => {
                Err("found a jump to another item, expected a route that is flown once".into())
            }
            command if FLOWN_TO.contains(&command) => {
                let above =
                    if ABOVE_SEA.contains(&item.frame) { 0.0 } else { self.home.altitude() };
                // No place, or zeros, is the one where the vehicle is.
                let (latitude, longitude) = match (latitude, longitude) {
                    (Some(latitude), Some(longitude)) if latitude != 0.0 || longitude != 0.0 => {
                        (latitude, longitude)
                    }
                    _ => (last.latitude(), last.longitude()),
                };
                self.fly_to(Position::new(latitude, longitude, above + altitude.unwrap_or(0.0)))
            }
            _ => Ok(()),
        }
    }

    fn fly_to(&mut self, next: Result<Position, PositionError>) -> Result<(), String> {
        let next = next.map_err(|error| error.to_string())?;
        // A climb above home is the beginning of the route, since a track takes no time for it.
        if self.points.len() == 1 && self.home.distance(next) < 1.0 {
            self.points.clear();
        }
        self.points.push(next);
        Ok(())
    }
}
