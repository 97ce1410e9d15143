//! The least further copies that bring a share of the messages in time.

use alloc::boxed::Box;

use skybraid_units::{Duration, Instant, Probability};

use super::copies::Purse;
use super::hedge::{ACK_DELAY, WITHIN, next_path, one_way, positive};
use super::low_rtt::lowest_rtt;
use super::odds::{BINS, LEVELS, PathOdds};
use super::warning::Warning;
use super::{Choice, Reason, Scheduler, Unit, candidates, wait_for_room};
use crate::per_path::PerPath;
use crate::registry::{About, Check, InvalidParameter, Parameter};
use crate::{PathId, PathSet, PathView};

/// See [`Config`].
pub const ABOUT: About = About {
    name: "deadline",
    summary: "For each datagram the number of copies, their paths and times with the least sum of \
              the chance of a miss and the price of the copies. Chances are learned from what \
              became of earlier packets, by the worst recent sign of trouble on their path when \
              they left; failures of two paths are taken to come together 3 times as often as \
              independent ones. The price of a copy rises as the budget is used up, and is at \
              least the share that may be missed. Over protocols that retransmit it is `low_rtt`.",
    source: "this project; the correlation: measured between carriers (PAM 2025)",
    linux: "",
    parameters: &[
        WITHIN,
        Parameter {
            name: "share",
            unit: "share",
            default: "99.999%",
            summary: "share of the messages that must arrive in time",
        },
        Parameter {
            name: "budget",
            unit: "share",
            default: "20%",
            summary: "further copies' bytes, of those of the first copies",
        },
        Parameter {
            name: "memory",
            unit: "time",
            default: "1s",
            summary: "time for which a bad delay is remembered",
        },
        Parameter { default: "(a sixteenth of within, at most 20ms)", ..ACK_DELAY },
    ],
};

/// Parameters of the scheduler.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Time within which a message must arrive; by default its own deadline, or 300 ms.
    pub within: Option<Duration>,
    /// Share of the messages that must arrive in time.
    pub share: Probability,
    /// Bytes of further copies, as a share of those of first copies.
    pub budget: Probability,
    /// Time for which a bad delay is remembered; above zero.
    pub memory: Duration,
    /// Maximum time for which the receiver holds an acknowledgement; by default a sixteenth of
    /// `within`, at most 20 ms.
    pub ack_delay: Option<Duration>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            within: None,
            share: Probability::new(0.99999).unwrap_or(Probability::ONE),
            budget: Probability::new(0.2).unwrap_or(Probability::ONE),
            memory: Duration::from_secs(1),
            ack_delay: None,
        }
    }
}

impl Check for Config {
    fn check(&self) -> Result<(), InvalidParameter> {
        positive("within", self.within)?;
        positive("memory", Some(self.memory))?;
        positive("ack_delay", self.ack_delay)
    }
}

impl Config {
    fn ack_delay(&self) -> Duration {
        let part = self.within.unwrap_or(USUAL) / BINS as i64;
        self.ack_delay.unwrap_or(part.min(Duration::from_millis(20)))
    }

    /// Builds a new instance.
    pub fn build(&self) -> Box<dyn Scheduler> {
        let fresh =
            PathState { warning: Warning::new(self.memory), back: Duration::ZERO, decided: None };
        Box::new(Deadline {
            config: self.clone(),
            ack_delay: self.ack_delay(),
            within: self.within,
            purse: Purse::new(self.budget.ratio(), INITIAL_FILL),
            odds: PathOdds::default(),
            paths: PerPath::new(fresh),
        })
    }
}

/// Share of the budget's savings that is there at the first message.
const INITIAL_FILL: f64 = 0.5;
/// Time within which a message must arrive if nothing says so.
const USUAL: Duration = Duration::from_millis(300);
/// How much more often two paths miss together than if they were independent: 2.5 to 3.6 between
/// two carriers of one kind, about 1 between Starlink and a carrier.
const CORRELATION: f64 = 3.0;
/// Factor between two estimates of a chance that are not distinguished.
const SIMILAR: f64 = 1.5;
/// Lowest price of a copy, as a chance.
const MIN_PRICE: f64 = 1e-9;

#[derive(Debug)]
struct Deadline {
    config: Config,
    ack_delay: Duration,
    /// Time within which messages must arrive, once it is known.
    within: Option<Duration>,
    purse: Purse,
    /// What became of earlier packets.
    odds: PathOdds,
    paths: PerPath<PathState>,
}

#[derive(Clone, Debug)]
struct PathState {
    warning: Warning,
    /// Time that an acknowledgement takes from the packet's arrival on.
    back: Duration,
    /// Time of the last decision about the path and its level then, while nothing has changed that.
    decided: Option<(Instant, usize)>,
}

impl PathState {
    /// Returns the sign of trouble, in eighths of the time until the deadline.
    #[inline]
    fn level(&mut self, now: Instant, within: Duration) -> usize {
        let sign = self.warning.sign(now, self.back);
        (bins(sign, within) / 2).min(LEVELS - 1)
    }
}

/// A path that may carry a copy.
#[derive(Clone, Copy, Debug)]
struct Route {
    path: PathId,
    level: usize,
    /// Chance that a copy misses the whole time.
    late: f64,
    srtt: Duration,
    /// Time that an acknowledgement takes from the packet's arrival on.
    back: Duration,
    /// Age of a packet by which its acknowledgement may be expected.
    expected: Duration,
}

/// Returns the number of whole sixteenths of `within` in `span`.
#[inline]
fn bins(span: Duration, within: Duration) -> usize {
    let part = span.as_secs_f64() / within.as_secs_f64() * BINS as f64;
    (part.max(0.0) as usize).min(BINS)
}

/// Returns the chance that a second copy misses too, if a first one does.
fn joint(late: f64) -> f64 {
    (CORRELATION * late).min(1.0)
}

impl Deadline {
    fn within(&self) -> Duration {
        self.within.unwrap_or(USUAL)
    }

    /// Returns the number of whole sixteenths of the time in `span`.
    fn bins(&self, span: Duration) -> usize {
        bins(span, self.within())
    }

    fn route(&mut self, now: Instant, view: &PathView) -> Route {
        let back = one_way(view, 0) + self.ack_delay;
        let within = self.within();
        let state = &mut self.paths[view.id];
        state.back = back;
        let level = state.level(now, within);
        state.decided = Some((now, level));
        let late = self.odds.chance(view.id, level, BINS);
        let srtt = view.srtt.unwrap_or(Duration::MAX);
        Route { path: view.id, level, late, srtt, back, expected: self.expected(view) }
    }

    /// Returns the age of a packet by which its acknowledgement may be expected.
    fn expected(&self, view: &PathView) -> Duration {
        view.srtt.unwrap_or(Duration::ZERO) + view.rtt_deviation + self.ack_delay
    }

    /// Price of a copy, as a chance of a miss: from that which may be missed, with all savings, to
    /// certainty without any.
    fn price(&self) -> f64 {
        let min = self.config.share.complement().ratio().max(MIN_PRICE);
        libm::pow(min, self.purse.fill())
    }

    /// Returns the cost of a copy on `first`, and one on `other` if that is not acknowledged by the
    /// best time for it, `left` before the deadline: the chance of a miss and `price`, that of the copy.
    fn hedged(&self, first: &Route, other: &Route, left: Duration, price: f64) -> f64 {
        let steps = self.bins(left);
        let back = self.bins(first.back);
        let earliest = self.bins(first.expected) + 1;
        let mut best = first.late;
        if earliest >= steps {
            return best;
        }
        let of_first = self.odds.chances(first.path, first.level);
        let of_other = self.odds.chances(other.path, other.level);
        let copies = |age: usize| price * of_first.longer_than(age.saturating_sub(back));
        // The later the copy, the less often it is needed, and the more often it is late.
        let least = copies(steps - 1);
        for age in earliest..steps {
            let missed = first.late * joint(of_other.longer_than(steps - age));
            if missed + least >= best {
                break;
            }
            best = best.min(missed + copies(age));
        }
        best
    }
}

/// Paths from the best on.
fn by_chance(one: &Route, other: &Route) -> core::cmp::Ordering {
    one.late.total_cmp(&other.late).then(one.srtt.cmp(&other.srtt))
}

impl Scheduler for Deadline {
    fn choose(&mut self, now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        if !unit.carried_by.is_empty() {
            return lowest_rtt(unit, paths);
        }
        self.within = self.config.within.or(self.within).or_else(|| {
            unit.deadline.map(|deadline| deadline.since(now)).filter(|left| left.is_positive())
        });
        let mut best: [Option<Route>; 3] = [None; 3];
        for view in candidates(paths).filter(|path| path.has_room) {
            let mut route = Some(self.route(now, view));
            for place in &mut best {
                if route.is_none() {
                    break;
                }
                if let (Some(one), Some(other)) = (&route, &place)
                    && by_chance(one, other).is_ge()
                {
                    continue;
                }
                core::mem::swap(place, &mut route);
            }
        }
        let [Some(mut first), second, third] = best else { return wait_for_room(paths) };
        self.purse.earn(unit.bytes);
        let Some(mut second) = second else {
            return Choice::Send(PathSet::only(first.path), Reason::OnlyPath);
        };
        let left = unit.deadline.map_or(self.within(), |deadline| deadline.since(now));
        let price = self.price();
        let left = left.min(self.within());
        let mut single = self.hedged(&first, &second, left, price);
        if second.srtt < first.srtt {
            // The faster path leaves more time for a further copy.
            let faster = self.hedged(&second, &first, left, price);
            if faster <= single * SIMILAR {
                core::mem::swap(&mut first, &mut second);
                single = faster;
            }
        }
        let both = first.late * joint(second.late);
        let two = both + price;
        let three = third.map(|third| both * joint(third.late) + 2.0 * price);
        if let (Some(third), Some(cost)) = (third, three)
            && cost < two.min(single)
            && self.purse.spend(unit.bytes)
        {
            let last = self.purse.spend(unit.bytes).then_some(third.path);
            let set = [first.path, second.path].into_iter().chain(last).collect();
            return Choice::Send(set, Reason::Risk);
        }
        if two < single && self.purse.spend(unit.bytes) {
            return Choice::Send([first.path, second.path].into_iter().collect(), Reason::Risk);
        }
        Choice::Send(PathSet::only(first.path), Reason::LowestRtt)
    }

    fn needs_rtt(&self) -> bool {
        true
    }

    fn ack_delay(&self) -> Option<Duration> {
        Some(self.ack_delay)
    }

    fn on_sent(&mut self, now: Instant, path: PathId) {
        let within = self.within();
        let state = &mut self.paths[path];
        let level = match state.decided.take() {
            Some((at, level)) if at == now => level,
            _ => state.level(now, within),
        };
        state.warning.on_sent(now, level as u8);
    }

    fn on_acked(&mut self, now: Instant, path: PathId, sent_at: Instant, delay: Duration) {
        let bins = self.bins(delay);
        let state = &mut self.paths[path];
        state.decided = None;
        if let Some(level) = state.warning.on_acked(now, sent_at, delay) {
            self.odds.on_settled(path, usize::from(level), bins);
        }
    }

    fn on_lost(&mut self, now: Instant, path: PathId, sent_at: Instant) {
        let state = &mut self.paths[path];
        state.decided = None;
        if let Some(level) = state.warning.on_lost(now, sent_at) {
            self.odds.on_settled(path, usize::from(level), BINS);
        }
    }

    fn hedge_at(
        &mut self,
        now: Instant,
        unit: &Unit,
        first_sent: Instant,
        paths: &[PathView],
    ) -> Option<Instant> {
        let other = next_path(unit, paths)?;
        let deadline = first_sent + self.within();
        let carried = paths.iter().filter(|path| unit.carried_by.contains(path.id));
        let acked = first_sent + carried.map(|view| self.expected(view)).min()?;
        let at = acked.max(now + self.within() / BINS as i64);
        (at + one_way(other, 0) < deadline).then_some(at)
    }

    fn hedge(
        &mut self,
        now: Instant,
        unit: &Unit,
        first_sent: Instant,
        paths: &[PathView],
    ) -> PathSet {
        let age = now.since(first_sent);
        let step = self.within() / BINS as i64;
        // The chance of a miss with what was sent, the next time that anything is learned, and the
        // chance that there is still no acknowledgement by then.
        let (mut late, mut next, mut stays) = (1.0_f64, age + step, 1.0_f64);
        for view in paths.iter().filter(|path| unit.carried_by.contains(path.id)) {
            let route = self.route(now, view);
            let unacked = |age: Duration| {
                let bins = self.bins(age - route.back);
                self.odds.chance(route.path, route.level, bins).max(route.late)
            };
            next = next.max(route.expected);
            late = late.min(route.late / unacked(age));
            stays = stays.min(unacked(next) / unacked(age));
        }
        let (left, later) = (self.bins(self.within() - age), self.bins(self.within() - next));
        let mut best: Option<(PathId, f64, f64)> = None;
        let untried = candidates(paths).filter(|path| !unit.carried_by.contains(path.id));
        for view in untried {
            let route = self.route(now, view);
            let missed = |left: usize| self.odds.chance(route.path, route.level, left);
            if best.is_none_or(|(_, least, _)| missed(left) < least) {
                best = Some((route.path, missed(left), missed(later)));
            }
        }
        let Some((path, missed, missed_later)) = best else { return PathSet::EMPTY };
        let price = self.price();
        let now_gains = late * (1.0 - joint(missed)) - price;
        let later_gains = late * (1.0 - joint(missed_later)) - price * stays;
        if now_gains > 0.0 && now_gains >= later_gains && self.purse.spend(unit.bytes) {
            PathSet::only(path)
        } else {
            PathSet::EMPTY
        }
    }

    fn hedge_early(
        &mut self,
        now: Instant,
        unit: &Unit,
        first_sent: Instant,
        paths: &[PathView],
    ) -> PathSet {
        self.hedge(now, unit, first_sent, paths)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{UNIT, paths};
    use super::*;

    fn at(millis: i64) -> Instant {
        Instant::from_millis(millis)
    }

    fn ms(millis: i64) -> Duration {
        Duration::from_millis(millis)
    }

    fn config(within_ms: i64, share: f64, budget: f64) -> Config {
        Config {
            within: Some(ms(within_ms)),
            share: Probability::new(share).unwrap(),
            budget: Probability::new(budget).unwrap(),
            ..Config::default()
        }
    }

    /// Sends `messages` every 10 ms over two paths, which deliver after 30 ms or as `delay` says
    /// (`None`: lost), and returns the mean number of copies at once.
    fn copies(
        scheduler: &mut dyn Scheduler,
        messages: i64,
        delay: impl Fn(i64, u8) -> Option<i64>,
    ) -> f64 {
        let two = paths(&[60, 60]);
        let mut sent = 0;
        for message in 0..messages {
            let now = at(10 * message);
            for path in 0..2 {
                let before = message - 8;
                let sent_at = at(10 * before);
                match delay(before, path) {
                    Some(delay) => scheduler.on_acked(now, PathId(path), sent_at, ms(delay)),
                    None => scheduler.on_lost(now, PathId(path), sent_at),
                }
                scheduler.on_sent(now, PathId(path));
            }
            if let Choice::Send(set, _) = scheduler.choose(now, &UNIT, &two) {
                sent += set.len();
            }
        }
        f64::from(sent) / messages as f64
    }

    #[test]
    fn calm_paths_need_no_copies() {
        let mut scheduler = config(160, 0.999, 1.0).build();
        copies(&mut *scheduler, 2000, |_, _| Some(30));
        assert!(copies(&mut *scheduler, 2000, |_, _| Some(30)) < 1.001);
    }

    // Within 60 ms no acknowledgement comes in time for a further copy.
    #[test]
    fn copies_are_bought_where_a_miss_is_likely() {
        let mut scheduler = config(60, 0.99999, 1.0).build();
        let random = |message: i64, _: u8| (message * 7919 % 10 != 0).then_some(30);
        let with_loss = copies(&mut *scheduler, 4000, random);
        assert!(with_loss > 1.3, "{with_loss}");
    }

    // With half of the savings at first, 0.5 · 4096 messages' budget may be spent besides.
    #[test]
    fn the_budget_bounds_the_copies() {
        let mut scheduler = config(60, 0.99999, 0.1).build();
        let random = |message: i64, _: u8| (message * 7919 % 5 != 0).then_some(30);
        let messages = 20_000;
        let sent = copies(&mut *scheduler, messages, random);
        assert!(sent <= 1.1 + 0.1 * 2048.0 / messages as f64 + 1e-9, "{sent}");
        assert!(sent > 1.08, "{sent}");
    }

    // An acknowledgement comes 70 ms after sending at the latest: 60 ms, held for a sixteenth of 160 ms.
    #[test]
    fn a_hedge_is_considered_once_the_acknowledgement_is_overdue() {
        let mut scheduler = config(160, 0.99999, 0.2).build();
        copies(&mut *scheduler, 3000, |_, _| Some(30));
        let two = paths(&[60, 60]);
        let sent = Unit { carried_by: PathSet::only(PathId(0)), ..UNIT };
        let now = at(30_000);
        let planned = scheduler.hedge_at(now, &sent, now, &two).unwrap().since(now);
        assert_eq!(planned, ms(70));
    }
}
