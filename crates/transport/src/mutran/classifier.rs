//! Classification of datagrams and messages as control or data.
//!
//! A datagram is MAVLink if it consists of whole, consecutive frames.

use alloc::vec::Vec;

use super::mavlink::{COMMON, Header};
use crate::Class;

/// Changes of the default set of control messages.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Numbers of additional control messages. In MAVLink 2 they are found anywhere in a stream; in
    /// MAVLink 1, where a number has 8 bits, only after another frame.
    pub add: Vec<u32>,
    /// Numbers of messages that are data instead.
    pub remove: Vec<u32>,
}

/// Classifier of datagrams.
#[derive(Clone, Debug)]
pub struct Classifier {
    /// Numbers of the control messages, ascending.
    control: Vec<u32>,
}

impl Default for Classifier {
    fn default() -> Self {
        Self::new(&Config::default())
    }
}

impl Classifier {
    /// Creates a classifier from the default table and `config`.
    pub fn new(config: &Config) -> Self {
        let by_default = COMMON.iter().filter(|known| known.control).map(|known| known.message);
        let added = config.add.iter().copied();
        let mut control: Vec<u32> =
            by_default.chain(added).filter(|message| !config.remove.contains(message)).collect();
        control.sort_unstable();
        control.dedup();
        Self { control }
    }

    /// Class of a datagram's payload: control if it consists of whole MAVLink frames and at least
    /// one of them is control.
    pub fn classify(&self, datagram: &[u8]) -> Class {
        let mut class = Class::Data;
        let mut rest = datagram;
        while !rest.is_empty() {
            let Ok(header) = Header::parse(rest) else { return Class::Data };
            let Some(following) = rest.get(header.frame()..) else { return Class::Data };
            if self.class_of(&header) == Class::Control {
                class = Class::Control;
            }
            rest = following;
        }
        class
    }

    /// Class of a frame.
    pub fn class_of(&self, header: &Header) -> Class {
        match self.control.binary_search(&header.message) {
            Ok(_) => Class::Control,
            Err(_) => Class::Data,
        }
    }

    /// True if the header may begin a frame anywhere in a stream.
    pub(super) fn is_sure(&self, header: &Header) -> bool {
        let is_wanted = || header.version == 2 && self.class_of(header) == Class::Control;
        header.is_known() || is_wanted()
    }
}

#[cfg(test)]
mod tests {
    use super::super::mavlink::frames::{attitude, command, version_1, version_2};
    use super::*;

    #[test]
    fn a_datagram_is_control_if_a_frame_in_it_is() {
        let classifier = Classifier::default();
        let heartbeat = version_1(1, 0, &[0; 9], 50);
        assert_eq!(classifier.classify(&command(1)), Class::Control);
        assert_eq!(classifier.classify(&heartbeat), Class::Control);
        assert_eq!(classifier.classify(&attitude(1)), Class::Data);
        assert_eq!(classifier.classify(&[attitude(1), command(2)].concat()), Class::Control);
        // Video that begins with the bytes of a frame is video.
        assert_eq!(classifier.classify(&[command(1), alloc::vec![0; 900]].concat()), Class::Data);
        assert_eq!(classifier.classify(&command(1)[..40]), Class::Data);
        assert_eq!(classifier.classify(&[]), Class::Data);
    }

    #[test]
    fn messages_can_be_added_to_and_removed_from_control() {
        let config = Config { add: alloc::vec![30, 42_000], remove: alloc::vec![76] };
        let classifier = Classifier::new(&config);
        assert_eq!(classifier.classify(&command(1)), Class::Data);
        assert_eq!(classifier.classify(&attitude(1)), Class::Control);
        let own = version_2(1, 42_000, &[1; 20], 0, false);
        assert_eq!(classifier.classify(&own), Class::Control);
    }
}
