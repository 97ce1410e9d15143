//! The least further copies that bring a share of the messages in time.

use alloc::boxed::Box;

use skybraid_units::{Duration, Instant, Probability};

use super::copies::Purse;
use super::forecast::{Forecast, Planned};
use super::hedge::{ACK_DELAY, WITHIN, one_way, positive};
use super::low_rtt::lowest_rtt;
use super::odds::{BEYOND, BINS, Chances, Estimate, INDEPENDENT, PERSISTENT, PathOdds, joint};
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
              they left, and whether it goes on; the odds of a failure are taken to be 3 times \
              as high while another path fails. The price of a copy rises as the budget is used up, \
              and is at least 50 times the share that may be missed. Over protocols that retransmit \
              it is `low_rtt`.",
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
        Parameter { default: "(a tenth of within, at most 40ms)", ..ACK_DELAY },
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
    /// Maximum time for which the receiver holds an acknowledgement; by default a tenth of
    /// `within`, at most 40 ms.
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
        let part = self.within.unwrap_or(USUAL) / 10;
        self.ack_delay.unwrap_or(part.min(Duration::from_millis(40)))
    }

    /// Builds a new instance.
    pub fn build(&self) -> Box<dyn Scheduler> {
        let fresh = PathState {
            warning: Warning::new(self.memory),
            last_sent: None,
            back: Duration::ZERO,
            silent_after: Duration::MAX,
            decided: None,
        };
        Box::new(Deadline {
            config: self.clone(),
            ack_delay: self.ack_delay(),
            within: self.within,
            purse: Purse::new(self.budget.ratio(), INITIAL_FILL),
            odds: PathOdds::default(),
            paths: PerPath::new(fresh),
            forecast: Forecast::default(),
        })
    }
}

/// Share of the budget's savings that is there at the first message.
const INITIAL_FILL: f64 = 0.5;
/// Time within which a message must arrive if nothing says so.
const USUAL: Duration = Duration::from_millis(300);
/// Factor between two estimates of a chance that are not distinguished.
const SIMILAR: f64 = 3.0;
/// Lowest price of a copy with all savings, in shares that may be missed, and as a chance.
const MIN_PRICE_SHARES: f64 = 50.0;
const MIN_PRICE: f64 = 1e-9;
/// Age beyond the round-trip time of a packet without a fate at which its path is silent.
const SILENCE: Duration = Duration::from_millis(300);
/// Parts of the time in which decisions are taken.
const STEPS: usize = 16;

#[derive(Debug)]
struct Deadline {
    config: Config,
    ack_delay: Duration,
    /// Time within which messages must arrive, once it is known.
    within: Option<Duration>,
    purse: Purse,
    /// Fates of earlier packets.
    odds: PathOdds,
    paths: PerPath<PathState>,
    forecast: Forecast,
}

#[derive(Clone, Debug)]
struct PathState {
    warning: Warning<Mark>,
    /// Time of sending of the last packet.
    last_sent: Option<Instant>,
    /// Time that an acknowledgement takes from the packet's arrival on.
    back: Duration,
    /// Age of a packet without a fate from which on the path is silent.
    silent_after: Duration,
    /// Time of the last decision about the path and its level then, while nothing has changed that.
    decided: Option<(Instant, usize)>,
}

/// State in which a packet left.
#[derive(Clone, Copy, Debug)]
struct Mark {
    level: usize,
    /// Number of independent packets that it counts as.
    weight: f64,
}

/// A path that may carry a copy.
#[derive(Clone, Copy, Debug)]
struct Route {
    path: PathId,
    level: usize,
    is_silent: bool,
    /// Chance that a copy misses the whole time.
    late: Estimate,
    srtt: Duration,
    /// Time that an acknowledgement takes from the packet's arrival on.
    back: Duration,
    /// Age of a packet by which its acknowledgement may be expected.
    expected: Duration,
}

impl Route {
    /// True if the path is not expected to deliver in time.
    const fn is_troubled(&self) -> bool {
        self.level >= BEYOND
    }

    /// Returns the chance of a miss of a copy here and one on `other` once the first is overdue, which is
    /// `missed` by the means.
    fn hedged_by(&self, other: &Self, missed: f64) -> Estimate {
        // The copy comes too late more often than both fail together.
        let too_late = missed / self.late.mean - joint(other.late.mean);
        self.late.times(&other.late.while_another_fails(too_late))
    }
}

/// Copies that are planned for a message, and what they cost.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Chance of a miss.
    missed: f64,
    /// The same, and the price of the further copies.
    cost: f64,
}

/// Returns the number of whole [`BINS`] of the time `within` in `span`.
#[inline]
fn bins(span: Duration, within: Duration) -> usize {
    let part = span.as_secs_f64() / within.as_secs_f64() * BINS as f64;
    part.max(0.0).min(BINS as f64) as u32 as usize
}

impl PathState {
    /// True if nothing has come back for long. What fails may be the way back alone.
    fn is_silent(&self, now: Instant) -> bool {
        self.warning.age(now) > self.silent_after
    }

    /// Returns the sign of trouble on the path, in eighths of the time `within`.
    fn level(&mut self, now: Instant, within: Duration) -> usize {
        let sign = self.warning.sign(now, self.back);
        let goes_on = self.warning.newest() > within || self.is_silent(now);
        match bins(sign, within) / (BINS / BEYOND) {
            BEYOND if goes_on => PERSISTENT,
            level => level,
        }
    }
}

impl Deadline {
    fn within(&self) -> Duration {
        self.within.unwrap_or(USUAL)
    }

    /// Returns the number of whole [`BINS`] of the time in `span`.
    fn bins(&self, span: Duration) -> usize {
        bins(span, self.within())
    }

    fn route(&mut self, now: Instant, view: &PathView) -> Route {
        let within = self.within();
        let back = one_way(view, 0) + self.ack_delay;
        let state = &mut self.paths[view.id];
        state.back = back;
        state.silent_after = SILENCE + view.srtt.unwrap_or(SILENCE);
        let level = state.level(now, within);
        state.decided = Some((now, level));
        let is_silent = state.is_silent(now);
        let late = self.odds.update(view.id, level).late();
        let srtt = view.srtt.unwrap_or(Duration::MAX);
        Route { path: view.id, level, is_silent, late, srtt, back, expected: self.expected(view) }
    }

    /// Returns the age of a packet by which its acknowledgement may be expected.
    fn expected(&self, view: &PathView) -> Duration {
        view.srtt.unwrap_or(Duration::ZERO) + view.rtt_deviation + self.ack_delay
    }

    /// Returns the share of the messages that may be missed.
    fn allowed(&self) -> f64 {
        self.config.share.complement().ratio()
    }

    /// Price of a copy, as a chance of a miss: from the lowest, with all savings, to certainty without
    /// any. It stays low until most is spent, since trouble comes in bursts.
    fn price(&self) -> f64 {
        let min = (MIN_PRICE_SHARES * self.allowed()).clamp(MIN_PRICE, 1.0);
        libm::pow(min, libm::sqrt(self.purse.fill()))
    }

    /// Pays for a further copy. Returns false if the budget does not allow it.
    fn buy(&mut self, unit: &Unit) -> bool {
        let bought = self.purse.spend(unit.bytes);
        if bought {
            self.forecast.on_copied(unit.bytes.get() as f64);
        }
        bought
    }

    /// Records the chance of a miss of a message as planned, and with a copy on each path.
    fn expect(&mut self, unit: &Unit, missed: Estimate, min_missed: Estimate, others: f64) {
        let bytes = unit.bytes.get() as f64;
        let planned = Planned { bytes, missed, min_missed, others };
        self.forecast.on_planned(self.within(), self.allowed(), &planned);
    }

    /// Returns the plan of a copy on `first`, and one on `other` if that is not acknowledged by the
    /// best time for it, `left` before the deadline.
    ///
    /// Trouble begins at any time, and is noticed once the first packet in it is overdue: all that are
    /// in flight by then are copied, each at an age from none to that of the first.
    fn hedged(&self, first: &Route, other: &Route, left: Duration, price: f64) -> Plan {
        let steps = self.bins(left);
        let back = self.bins(first.back);
        let overdue = self.bins(first.expected) + 1;
        let of_first = self.odds.chances(first.path, first.level);
        let of_other = self.odds.chances(other.path, other.level);
        let copy_costs =
            |age: usize| price * of_first.longer_than(age.min(BINS).saturating_sub(back));
        let too_late = |age: usize| match steps.checked_sub(age) {
            Some(left) => misses_too(other, of_other, left),
            None => 1.0,
        };
        let end = steps.max(overdue);
        let least = copy_costs(end);
        let late = first.late.mean;
        let mut best = Plan { missed: late, cost: late };
        let (mut sum, mut ages, mut age) = (0.0, 0.0, 0);
        while age <= end {
            sum += too_late(age);
            ages += 1.0;
            if age >= overdue {
                // The later the copy, the more often it is late, and the less often it is needed.
                let missed = late * sum / ages;
                if missed + least >= best.cost {
                    break;
                }
                let cost = missed + copy_costs(age);
                if cost < best.cost {
                    best = Plan { missed, cost };
                }
            }
            age += BINS / STEPS;
        }
        best
    }
}

/// Returns the chance that a copy on `other`, of which `odds` hold, does not arrive within `left`, if the first one misses
/// the whole time: failures come together, longer delays on the way do not.
fn misses_too(other: &Route, odds: &Chances, left: usize) -> f64 {
    (odds.longer_than(left) + joint(other.late.mean) - other.late.mean).min(1.0)
}

/// Paths from the best on; silent ones come last.
fn by_chance(one: &Route, other: &Route) -> core::cmp::Ordering {
    let silence = one.is_silent.cmp(&other.is_silent);
    silence.then(one.late.mean.total_cmp(&other.late.mean)).then(one.srtt.cmp(&other.srtt))
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
            let route = self.route(now, view);
            let is_better = |other: &Route| by_chance(&route, other).is_lt();
            let place = best.iter().position(|other| other.as_ref().is_none_or(is_better));
            if let Some(place) = place {
                best.copy_within(place..2, place + 1);
                best[place] = Some(route);
            }
        }
        let [Some(mut first), second, third] = best else { return wait_for_room(paths) };
        self.purse.earn(unit.bytes);
        // What a silent path holds up is in the way once it is back.
        let is_tried = |route: &Route| !route.is_silent || first.is_troubled();
        let (second, third) = (second.filter(is_tried), third.filter(is_tried));
        let Some(mut second) = second else {
            self.expect(unit, first.late, first.late, 0.0);
            return Choice::Send(PathSet::only(first.path), Reason::OnlyPath);
        };
        let left = unit.deadline.map_or(self.within(), |deadline| deadline.since(now));
        let price = self.price();
        let left = left.min(self.within());
        let mut single = self.hedged(&first, &second, left, price);
        if second.srtt < first.srtt {
            // The faster path leaves more time for a further copy.
            let faster = self.hedged(&second, &first, left, price);
            if faster.cost <= single.cost * SIMILAR {
                core::mem::swap(&mut first, &mut second);
                single = faster;
            }
        }
        let both = first.late.and(&second.late);
        let two = both.mean + price;
        let all = third.map_or(both, |third| both.and(&third.late));
        let three = third.map(|third| (third, all.mean + 2.0 * price));
        let mut set = PathSet::only(first.path);
        let mut planned = first.hedged_by(&second, single.missed);
        if let Some((third, cost)) = three
            && cost < two.min(single.cost)
            && self.buy(unit)
        {
            let last = self.buy(unit).then_some(third.path);
            set = [first.path, second.path].into_iter().chain(last).collect();
            planned = if last.is_some() { all } else { both };
        } else if two < single.cost && self.buy(unit) {
            set = [first.path, second.path].into_iter().collect();
            planned = both;
        }
        let others = if third.is_some() { 2.0 } else { 1.0 };
        self.expect(unit, planned, all, others);
        let reason = if set.len() > 1 { Reason::Risk } else { Reason::LowestRtt };
        Choice::Send(set, reason)
    }

    fn ack_delay(&self) -> Option<Duration> {
        Some(self.ack_delay)
    }

    fn judges_silence(&self) -> bool {
        true
    }

    fn forecast(&self) -> Option<Forecast> {
        self.forecast.known()
    }

    fn on_sent(&mut self, now: Instant, path: PathId) {
        let within = self.within();
        let state = &mut self.paths[path];
        let level = match state.decided.take() {
            Some((at, level)) if at == now => level,
            _ => state.level(now, within),
        };
        let since = state.last_sent.replace(now).map_or(INDEPENDENT, |last| now.since(last));
        let weight = (since.as_secs_f64() / INDEPENDENT.as_secs_f64()).min(1.0);
        state.warning.on_sent(now, Mark { level, weight });
    }

    fn on_settled(&mut self, now: Instant, path: PathId, sent: Instant, delay: Option<Duration>) {
        let bins = delay.map_or(BINS, |delay| self.bins(delay));
        let state = &mut self.paths[path];
        state.decided = None;
        if let Some(mark) = state.warning.on_settled(now, sent, delay) {
            self.odds.on_settled(path, mark.level, bins, mark.weight);
        }
    }

    fn hedge_at(
        &mut self,
        now: Instant,
        unit: &Unit,
        first_sent: Instant,
        paths: &[PathView],
    ) -> Option<Instant> {
        if !candidates(paths).any(|path| !unit.carried_by.contains(path.id)) {
            return None;
        }
        let deadline = first_sent + self.within();
        let carried = paths.iter().filter(|path| unit.carried_by.contains(path.id));
        let acked = first_sent + carried.map(|view| self.expected(view)).min()?;
        let at = acked.max(now + self.within() / STEPS as i64);
        (at < deadline).then_some(at)
    }

    fn hedge(
        &mut self,
        now: Instant,
        unit: &Unit,
        first_sent: Instant,
        paths: &[PathView],
    ) -> PathSet {
        let age = now.since(first_sent);
        let step = self.within() / STEPS as i64;
        // The chance of a miss with what was sent, the next time that anything is learned, and the
        // chance that there is still no acknowledgement by then.
        let (mut late, mut next, mut stays) = (1.0_f64, age + step, 1.0_f64);
        let mut is_troubled = true;
        for view in paths.iter().filter(|path| unit.carried_by.contains(path.id)) {
            let route = self.route(now, view);
            is_troubled &= route.is_troubled();
            let unacked = |age: Duration| {
                let bins = self.bins(age - route.back);
                self.odds.chance(route.path, route.level, bins).max(route.late.mean)
            };
            next = next.max(route.expected);
            late = late.min(route.late.mean / unacked(age));
            stays = stays.min(unacked(next) / unacked(age));
        }
        let (left, later) = (self.bins(self.within() - age), self.bins(self.within() - next));
        let mut best: Option<(PathId, f64, f64)> = None;
        let untried = candidates(paths).filter(|path| !unit.carried_by.contains(path.id));
        for view in untried {
            let route = self.route(now, view);
            if route.is_silent && !is_troubled {
                continue;
            }
            let of_route = self.odds.chances(route.path, route.level);
            let missed = |left: usize| misses_too(&route, of_route, left);
            if best.is_none_or(|(_, least, _)| missed(left) < least) {
                best = Some((route.path, missed(left), missed(later)));
            }
        }
        let Some((path, missed, missed_later)) = best else { return PathSet::EMPTY };
        let price = self.price();
        let now_gains = late * (1.0 - missed) - price;
        let later_gains = late * (1.0 - missed_later) - price * stays;
        if now_gains > 0.0 && now_gains >= later_gains && self.buy(unit) {
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
    use super::super::testing::{UNIT, at, ms, paths};
    use super::*;

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
                let delay = delay(before, path).map(ms);
                scheduler.on_settled(now, PathId(path), sent_at, delay);
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

    // With half of the savings at first, 0.5 · 16,384 messages' budget may be spent besides.
    #[test]
    fn the_budget_bounds_the_copies() {
        let mut scheduler = config(60, 0.99999, 0.1).build();
        let random = |message: i64, _: u8| (message * 7919 % 5 != 0).then_some(30);
        let messages = 20_000;
        let sent = copies(&mut *scheduler, messages, random);
        assert!(sent <= 1.1 + 0.1 * 8192.0 / messages as f64 + 1e-9, "{sent}");
        assert!(sent > 1.08, "{sent}");
    }

    // An acknowledgement comes 76 ms after sending at the latest: 60 ms, held for a tenth of 160 ms.
    #[test]
    fn a_hedge_is_considered_once_the_acknowledgement_is_overdue() {
        let mut scheduler = config(160, 0.99999, 0.2).build();
        copies(&mut *scheduler, 3000, |_, _| Some(30));
        let two = paths(&[60, 60]);
        let sent = Unit { carried_by: PathSet::only(PathId(0)), ..UNIT };
        let now = at(30_000);
        let planned = scheduler.hedge_at(now, &sent, now, &two).unwrap().since(now);
        assert_eq!(planned, ms(76));
    }

    /// Delivers over path 0 after 30 ms, or `delay` what leaves from 2.5 s on, while nothing comes back from path 1 since
    /// 1 s. Returns the number of copies of a message at 3 s.
    fn copies_beside_silence(delay: i64) -> u32 {
        let mut scheduler = config(60, 0.99999, 1.0).build();
        let two = paths(&[60, 60]);
        for now in (0..3000).step_by(10) {
            for (path, delay, since, until) in
                [(0, 30, 0, 2500), (0, delay, 2500, 3000), (1, 30, 0, 1000)]
            {
                let sent = now - delay - 30;
                if (since..until).contains(&sent) {
                    scheduler.on_settled(at(now), PathId(path), at(sent), Some(ms(delay)));
                }
            }
            (0..2).for_each(|path| scheduler.on_sent(at(now), PathId(path)));
        }
        match scheduler.choose(at(3000), &UNIT, &two) {
            Choice::Send(set, _) => set.len(),
            Choice::Wait { .. } => 0,
        }
    }

    // What is silent may deliver: the acknowledgements may be what fails. But while another path works, a
    // queue would grow on it.
    #[test]
    fn a_silent_path_is_tried_if_the_other_is_late() {
        assert_eq!(copies_beside_silence(30), 1);
        assert_eq!(copies_beside_silence(400), 2);
    }
}
