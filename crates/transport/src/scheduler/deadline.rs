//! The least further copies that bring a share of the messages in time.

use skybraid_units::{Duration, Instant, Probability};

use super::copies::Purse;
use super::forecast::{Forecast, Planned};
use super::low_rtt::lowest_rtt;
use super::odds::{BINS, PathOdds};
use super::plan::{Plan, STEPS, Terms};
use super::route::{PathState, Rank, Route, Times, bins, expected};
use super::{Choice, Reason, Scheduler, Unit, candidates, wait_for_room};
use crate::per_path::PerPath;
use crate::{PathId, PathSet, PathView, algorithm};

algorithm! {
    name: "deadline",
    summary: "Chooses for each datagram the number of copies, their paths and times that minimise \
              the sum of the chance of a miss and the price of the copies. Chances are learned \
              from the fates of earlier packets, by the worst recent sign of trouble on their path \
              when they were sent, whether it persists, and whether a packet was late there in the \
              last 4 s. While another path fails, the odds of a failure are assumed to be 3 times \
              as high. The price of a copy rises as the budget is used up; it is at least 50 times \
              the share that may be missed. Over protocols that retransmit, it is `low_rtt`.",
    source: "this project; the correlation: measured between carriers (PAM 2025)",
    parameters: {
        within: Option<Duration> = None, "time", "(the message's deadline)",
            "time within which a message must arrive",
            "above zero" if within.is_none_or(Duration::is_positive);
        share: Probability = Probability::saturating(0.99999), "share", "99.999%",
            "share of the messages that must arrive in time";
        budget: Probability = Probability::saturating(0.2), "share", "20%",
            "bytes of further copies as a share of the bytes of first copies";
        memory: Duration = Duration::from_secs(1), "time", "1s",
            "time for which a bad delay is remembered",
            "above zero" if memory.is_positive();
        ack_delay: Option<Duration> = None, "time", "(a tenth of within, at most 40ms)",
            "maximum time for which the receiver holds an acknowledgement",
            "above zero" if ack_delay.is_none_or(Duration::is_positive);
    },
    scheduler: |config| Deadline::new(config),
}

impl Config {
    fn ack_delay(&self) -> Duration {
        let part = self.within.unwrap_or(USUAL) / 10;
        self.ack_delay.unwrap_or(part.min(Duration::from_millis(40)))
    }

    /// Returns the share of the messages that may be missed.
    fn allowed(&self) -> f64 {
        self.share.complement().ratio()
    }

    /// Returns the price of a copy with all savings, as a chance of a miss.
    fn min_price(&self) -> f64 {
        (MIN_PRICE_SHARES * self.allowed()).clamp(MIN_PRICE, 1.0)
    }
}

/// Share of the budget's savings that is there at the first message.
const INITIAL_FILL: f64 = 0.5;
/// Time within which a message must arrive if nothing says so.
const USUAL: Duration = Duration::from_millis(300);
/// Lowest price of a copy with all savings, in shares that may be missed, and as a chance.
const MIN_PRICE_SHARES: f64 = 50.0;
const MIN_PRICE: f64 = 1e-9;

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
    /// Number of changes of what is known of paths.
    changes: u64,
    /// The last plan, and the situation that it is for.
    plan: Plan,
    situation: Option<Situation>,
    /// Binary logarithm of the price of a copy with all savings.
    min_price_log2: f64,
    /// The last share of the savings, and the price of a copy with it.
    price: (f64, f64),
    forecast: Forecast,
}

/// All that a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Situation {
    /// Number of changes of what is known of paths.
    changes: u64,
    first: PathId,
    others: [Option<PathId>; 2],
    terms: Terms,
}

impl Deadline {
    fn new(config: &Config) -> Self {
        Self {
            config: config.clone(),
            ack_delay: config.ack_delay(),
            within: config.within,
            purse: Purse::new(config.budget.ratio(), INITIAL_FILL),
            odds: PathOdds::default(),
            paths: PerPath::new(PathState::new(config.memory)),
            changes: 0,
            situation: None,
            plan: Plan::UNKNOWN,
            min_price_log2: libm::log2(config.min_price()),
            price: (1.0, config.min_price()),
            forecast: Forecast::default(),
        }
    }

    fn within(&self) -> Duration {
        self.within.unwrap_or(USUAL)
    }

    /// Takes the deadline from the first message that has one.
    fn learn_within(&mut self, now: Instant, unit: &Unit) {
        if self.within.is_none()
            && let Some(deadline) = unit.deadline
            && deadline > now
        {
            self.within = Some(deadline.since(now));
            self.paths.iter_mut().for_each(PathState::forget_times);
        }
    }

    /// Returns the place of a path that is brought up to date.
    #[inline(always)]
    fn rank(&mut self, now: Instant, view: &PathView) -> Rank {
        let times = Times { within: self.within(), ack_delay: self.ack_delay };
        let path = &mut self.paths[view.id];
        path.current_rank(now, view, self.odds.settled()).unwrap_or_else(|| {
            self.changes += u64::from(path.refresh(now, view, times, &mut self.odds));
            path.route().rank()
        })
    }

    /// Returns a path that is brought up to date.
    fn route(&mut self, now: Instant, view: &PathView) -> Route {
        self.rank(now, view);
        *self.paths[view.id].route()
    }

    /// Returns up to three paths with room, from the best on.
    #[inline]
    fn best(&mut self, now: Instant, paths: &[PathView]) -> [Option<PathId>; 3] {
        let mut best = [(Rank::MAX, None); 3];
        for view in candidates(paths).filter(|path| path.has_room) {
            let rank = self.rank(now, view);
            let found = (rank, Some(view.id));
            best = match best {
                [one, two, _] if rank < one.0 => [found, one, two],
                [one, two, _] if rank < two.0 => [one, found, two],
                [one, two, three] if rank < three.0 => [one, two, found],
                others => others,
            };
        }
        best.map(|(_, path)| path)
    }

    /// Makes the plan for a message, unless the situation is that of the last one.
    fn plan(&mut self, situation: Situation) {
        if self.situation != Some(situation) {
            let Situation { first, others, terms, .. } = situation;
            let route = |path: PathId| self.paths[path].route();
            self.plan = terms.plan(&self.odds, route(first), others.map(|path| path.map(route)));
            self.situation = Some(situation);
        }
    }

    /// Price of a copy, as a chance of a miss: from the lowest, with all savings, to certainty without
    /// any. It stays low until most is spent, since trouble comes in bursts.
    fn price(&mut self) -> f64 {
        let fill = self.purse.fill();
        if fill != self.price.0 {
            self.price = (fill, libm::exp2(self.min_price_log2 * libm::sqrt(libm::sqrt(fill))));
        }
        self.price.1
    }

    /// Pays for a further copy. Returns false if the budget does not allow it.
    fn buy(&mut self, unit: &Unit) -> bool {
        let bought = self.purse.spend(unit.bytes);
        if bought {
            self.forecast.on_copied(unit.bytes.get() as f64);
        }
        bought
    }

    /// Records the chance of a miss of a message with the further copies that were bought, and with one on each path.
    fn expect(&mut self, unit: &Unit, bought: usize) {
        let Plan { missed, others, .. } = &self.plan;
        let [.., min_missed] = missed;
        let planned = Planned {
            bytes: unit.bytes.get() as f64,
            missed: *missed.get(bought).unwrap_or(min_missed),
            min_missed: *min_missed,
            others: *others as f64,
        };
        self.forecast.on_planned(self.within(), self.config.allowed(), &planned);
    }
}

impl Scheduler for Deadline {
    fn choose(&mut self, now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        if !unit.carried_by.is_empty() {
            return lowest_rtt(unit, paths);
        }
        self.learn_within(now, unit);
        let best = self.best(now, paths);
        let [Some(first), second, third] = best else { return wait_for_room(paths) };
        self.purse.earn(now, unit.bytes);
        let left = unit.deadline.map_or(self.within(), |deadline| deadline.since(now));
        let terms = Terms { left: bins(left, self.within()), price: self.price() };
        let others = [second, third];
        self.plan(Situation { changes: self.changes, first, others, terms });
        let Plan { copies, is_swapped, others, .. } = self.plan;
        let order = if is_swapped { [second, Some(first), third] } else { best };
        let bought = (1..copies).take_while(|_| self.buy(unit)).count();
        let chosen = order.iter().take(1 + bought).flatten();
        let set = chosen.fold(PathSet::EMPTY, |set, path| set.with(*path));
        self.expect(unit, bought);
        let reason = match (bought, others) {
            (0, 0) => Reason::OnlyPath,
            (0, _) => Reason::LowestRtt,
            _ => Reason::Risk,
        };
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
        self.paths[path].on_sent(now, within);
    }

    fn on_settled(&mut self, now: Instant, path: PathId, sent: Instant, delay: Option<Duration>) {
        let within = self.within();
        let bins = delay.map_or(BINS, |delay| bins(delay, within));
        if let Some(mark) = self.paths[path].on_settled(now, sent, delay, within) {
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
        let carries = |path: &&PathView| unit.carried_by.contains(path.id);
        if candidates(paths).all(|path| carries(&path)) {
            return None;
        }
        let carried = paths.iter().filter(carries);
        let acked = carried.map(|view| expected(view, self.ack_delay)).min()?;
        let at = (first_sent + acked).max(now + self.within() / STEPS as i64);
        (at < first_sent + self.within()).then_some(at)
    }

    fn hedge(
        &mut self,
        now: Instant,
        unit: &Unit,
        first_sent: Instant,
        paths: &[PathView],
    ) -> PathSet {
        let age = now.since(first_sent);
        let within = self.within();
        let step = within / STEPS as i64;
        // The chance of a miss with what was sent, the next time that anything is learned, and the
        // chance that there is still no acknowledgement by then.
        let (mut late, mut next, mut stays) = (1.0_f64, age + step, 1.0_f64);
        let mut is_troubled = true;
        for view in paths.iter().filter(|path| unit.carried_by.contains(path.id)) {
            let route = self.route(now, view);
            is_troubled &= route.is_troubled();
            let unacked = |age: Duration| {
                let bins = bins(age - route.back, within);
                self.odds.chance(route.path, route.level, bins).max(route.late.mean)
            };
            next = next.max(route.expected);
            late = late.min(route.late.mean / unacked(age));
            stays = stays.min(unacked(next) / unacked(age));
        }
        let (left, later) = (bins(within - age, within), bins(within - next, within));
        let mut best: Option<(PathId, f64, f64)> = None;
        let untried = candidates(paths).filter(|path| !unit.carried_by.contains(path.id));
        for view in untried {
            let route = self.route(now, view);
            if route.is_silent && !is_troubled {
                continue;
            }
            let of_route = self.odds.chances(route.path, route.level);
            let missed = |left: usize| of_route.misses_too(left, route.late_together.mean);
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

    /// Delivers over path 0 after 30 ms, or `delay` what leaves from 2.5 s on, while nothing comes back from path 1
    /// since 1 s. Returns the number of copies of a message at 3 s.
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
