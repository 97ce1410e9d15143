//! Repair planned over the rounds that are left before the deadline.

use alloc::vec;
use alloc::vec::Vec;

use skybraid_units::{Duration, Instant};

use super::arrivals::{Arrivals, LossChain, stationary};
use super::coded::repair_paths;
use super::hedge::{expected_age, one_way};
use super::low_rtt::lowest_rtt;
use super::{Choice, Grouping, Repairs, Run, Scheduler, Unit, candidates};
use crate::per_path::PerPath;
use crate::{PathId, PathView, algorithm};

algorithm! {
    name: "rounds",
    summary: "Uses the path with the lowest round-trip time. The deadline of a frame (messages \
              written together) leaves a number of rounds of sending and acknowledging. In each \
              round, the number of random linear combinations maximises the expected value: −1 for \
              a miss, and −`cost` for combinations as many as the frame's packets. So few are sent \
              at first, and many in the last round. Losses of each path are modelled as ON/OFF (a \
              chain of two states), and the combinations of a round are sent on the best path, or \
              in halves on the best two. Over protocols that retransmit, it is `low_rtt`.",
    source: "Hairpin (NSDI 2024), for one path and independent loss; several paths, ON/OFF loss and \
             a code that keeps earlier combinations (RFC 8681) are this project's",
    parameters: {
        within: Option<Duration> = None, "time", "(the message's deadline)",
            "time within which a message must arrive",
            "above zero" if within.is_none_or(Duration::is_positive);
        cost: f64 = 1e-4, "number", "0.0001",
            "price, in misses, of as many combinations as the frame has packets",
            "above 0, at most 1" if *cost > 0.0 && *cost <= 1.0;
        ack_delay: Duration = Duration::from_millis(20), "time", "20ms",
            "maximum time for which the receiver holds an acknowledgement",
            "above zero" if ack_delay.is_positive();
    },
    scheduler: |config| Rounds {
        config: config.clone(),
        losses: PerPath::new(LossChain::default()),
        plan: None,
    },
}

/// Maximum rounds that are planned, and maximum packets of a frame; larger frames are planned in scale.
const MAX_ROUNDS: usize = 6;
const MAX_PACKETS: usize = 40;
/// Time within which a frame must arrive if nothing says so.
const USUAL: Duration = Duration::from_millis(150);
/// Change of a path's loss, as a factor, after which rounds are planned again.
const CHANGED: f64 = 1.25;

/// Returns the numbers of further packets among which a plan for `missing` chooses: Hairpin's, 0 to 1 in
/// steps of 0.05, and 2, 3, 4, 5 times as many.
fn further(missing: usize) -> impl Iterator<Item = usize> {
    let parts = (0..=20).map(move |part| libm::rint(part as f64 * 0.05 * missing as f64) as usize);
    let mut last = None;
    let whole = (2..=5).map(move |times| times * missing);
    parts.chain(whole).filter(move |number| last.replace(*number) != Some(*number))
}

/// Chances of 0, 1, … missing packets after a round.
type Chances = Vec<f64>;

/// Values of the states before a frame's deadline.
#[derive(Clone, Debug)]
struct Plan {
    rates: [f64; 2],
    /// Packets of the frame.
    packets: usize,
    /// By rounds left, then packets missing.
    values: Vec<Vec<f64>>,
}

impl Plan {
    /// Computes V(L, k) = max over b of Σ P(k→n | b) V(L − 1, n) − cost · b / packets, with V(0, k) = −1
    /// for k > 0 and V(L, 0) = 0. `transition(k, b)` has the chance of each n if k packets are missing and
    /// b more than them are sent.
    fn new(
        packets: usize,
        cost: f64,
        rates: [f64; 2],
        transition: impl Fn(usize, usize) -> Chances,
    ) -> Self {
        let price = |b: usize| cost * b as f64 / packets.max(1) as f64;
        let round =
            |missing| further(missing).map(|b| (price(b), transition(missing, b))).collect();
        let rounds: Vec<Vec<(f64, Chances)>> = (0..=packets).map(round).collect();
        let mut layer: Vec<f64> = (0..=packets).map(|k| if k > 0 { -1.0 } else { 0.0 }).collect();
        let mut values = vec![layer.clone()];
        for _ in 0..MAX_ROUNDS {
            let value = |(price, chances): &(f64, Chances)| {
                expected(chances.iter().copied(), &layer) - price
            };
            let best =
                |choices: &Vec<_>| choices.iter().map(value).fold(f64::NEG_INFINITY, f64::max);
            layer = rounds.iter().map(best).collect();
            values.push(layer.clone());
        }
        Self { rates, packets, values }
    }

    /// Returns the values of the states with `left` rounds left.
    fn layer(&self, left: usize) -> &[f64] {
        self.values.get(left.min(MAX_ROUNDS)).map_or(&[], Vec::as_slice)
    }

    /// True if the plan still serves for these losses and a frame of `packets`.
    fn serves(&self, rates: [f64; 2], packets: usize) -> bool {
        let near = |one: f64, other: f64| one <= other * CHANGED && other <= one * CHANGED;
        let same = self.rates.iter().zip(rates).all(|(one, other)| near(*one, other));
        same && near(self.packets as f64, packets as f64) && packets <= self.packets
    }
}

fn expected(chances: impl Iterator<Item = f64>, values: &[f64]) -> f64 {
    chances.zip(values).map(|(chance, value)| chance * value).sum()
}

/// Returns the chances of 0, 1, … missing if each packet that arrives replaces one of `missing`.
fn missing_after(missing: usize, arrivals: impl Iterator<Item = f64>) -> Chances {
    let mut chances = vec![0.0; missing + 1];
    for (arrived, chance) in arrivals.enumerate() {
        chances[missing.saturating_sub(arrived)] += chance;
    }
    chances
}

/// Returns the chances of the sum of two independent numbers.
fn sum(one: &Arrivals, other: &Arrivals) -> Vec<f64> {
    let mut chances = vec![0.0; one.iter().count() + other.iter().count() - 1];
    for (first, chance) in one.iter().enumerate() {
        for (entry, more) in chances.iter_mut().skip(first).zip(other.iter()) {
            *entry += chance * more;
        }
    }
    chances
}

#[derive(Debug)]
struct Rounds {
    config: Config,
    losses: PerPath<LossChain>,
    plan: Option<Plan>,
}

/// Combinations on up to two paths, and what they are worth.
#[derive(Clone, Copy, Debug)]
struct Split {
    counts: [usize; 2],
    value: f64,
}

impl Rounds {
    fn deadline(&self, first_sent: Instant, own: Option<Instant>) -> Instant {
        let within = self.config.within.map(|within| first_sent + within);
        within.or(own).unwrap_or(first_sent + USUAL)
    }

    /// Returns the chances of packets that leave now on `path`.
    fn arrivals(&self, path: PathId, packets: usize) -> Arrivals {
        let chain = &self.losses[path];
        Arrivals::new(chain.rates(), if chain.is_off() { 1.0 } else { 0.0 }).after(packets)
    }

    /// Returns the plan for a frame over a path.
    fn plan(&mut self, path: PathId, packets: usize) -> &Plan {
        let rates = self.losses[path].rates();
        let cost = self.config.cost;
        let plan = self.plan.take().filter(|plan| plan.serves(rates, packets));
        self.plan.insert(plan.unwrap_or_else(|| {
            let arrivals = |packets| Arrivals::new(rates, stationary(rates)).after(packets);
            Plan::new(packets, cost, rates, |k, b| missing_after(k, arrivals(k + b).iter()))
        }))
    }

    /// Returns the best numbers of combinations on `open`. `missing` packets are to be replaced, or of a
    /// fresh frame, have just left on `carrier`; then `values` are those of the rounds after this one.
    fn best(
        &self,
        missing: usize,
        carrier: Option<PathId>,
        open: [Option<PathId>; 2],
        values: &[f64],
    ) -> Split {
        let frame = carrier.map(|path| self.arrivals(path, missing));
        let base = if frame.is_some() { 0 } else { missing };
        let value = |counts: [usize; 2]| {
            let on = |place: usize| {
                let (path, count) = (open[place]?, counts[place]);
                (count > 0).then(|| self.arrivals(path, count))
            };
            let nothing = || Arrivals::new([0.0; 2], 0.0);
            let (one, other) = (on(0).unwrap_or_else(nothing), on(1).unwrap_or_else(nothing));
            let arrived = match &frame {
                // A fresh frame's combinations all go to one path.
                Some(frame) => sum(frame, if counts[0] > 0 { &one } else { &other }),
                None => sum(&one, &other),
            };
            expected(missing_after(missing, arrived.into_iter()).into_iter(), values)
        };
        let mut best = Split { counts: [base, 0], value: f64::NEG_INFINITY };
        for b in further(missing) {
            let (sent, price) = (base + b, self.config.cost * b as f64 / missing as f64);
            let mut splits = vec![[sent, 0]];
            if open[1].is_some() {
                splits.push([0, sent]);
                if frame.is_none() {
                    splits.push([sent.div_ceil(2), sent / 2]);
                }
            }
            for counts in splits {
                let value = value(counts) - price;
                if value > best.value {
                    best = Split { counts, value };
                }
            }
        }
        best
    }
}

impl Scheduler for Rounds {
    fn choose(&mut self, _now: Instant, unit: &Unit, paths: &[PathView]) -> Choice {
        lowest_rtt(unit, paths)
    }

    fn ack_delay(&self) -> Option<Duration> {
        Some(self.config.ack_delay)
    }

    fn on_settled(&mut self, _now: Instant, path: PathId, _sent: Instant, delay: Option<Duration>) {
        self.losses[path].on_settled(delay.is_none());
    }

    fn grouping(&self) -> Option<Grouping> {
        Some(Grouping::Frames)
    }

    fn hedge_at(
        &mut self,
        now: Instant,
        unit: &Unit,
        first_sent: Instant,
        paths: &[PathView],
    ) -> Option<Instant> {
        let at = now + expected_age(unit, self.config.ack_delay, paths);
        let fastest = candidates(paths).map(|path| one_way(path, 0)).min()?;
        let in_time = at + fastest <= self.deadline(first_sent, unit.deadline);
        in_time.then_some(at.max(now + Duration::from_millis(1)))
    }

    fn repair(&mut self, now: Instant, run: &Run, paths: &[PathView]) -> Repairs {
        let deadline = self.deadline(run.first_sent, run.deadline);
        let open = repair_paths(now, run, Some(deadline), paths);
        let Some(first) = open.first() else { return Repairs::default() };
        let round = first.srtt.unwrap_or(USUAL) + first.rtt_deviation * 2 + self.config.ack_delay;
        let after = (deadline - one_way(first, 0)).since(now).as_secs_f64() / round.as_secs_f64();
        let carrier = run.carried_by.first().filter(|_| run.fresh);
        let missing = (run.missing as usize).max(1);
        let planned = missing.min(MAX_PACKETS);
        let layer = self.plan(carrier.unwrap_or(first.id), planned).layer(after as usize).to_vec();
        let open = [Some(first.id), carrier.or(open.get(1).map(|path| path.id))];
        let Split { counts, .. } = self.best(planned, carrier, open, &layer);
        let on = |(path, count): (Option<PathId>, usize)| {
            // Larger frames are planned in scale.
            let scaled = (count * missing).div_ceil(planned);
            path.into_iter().flat_map(move |path| core::iter::repeat_n(path, scaled))
        };
        Repairs { first: None, paths: open.into_iter().zip(counts).flat_map(on).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{UNIT, paths};
    use super::*;
    use crate::PathSet;

    fn binomial(n: usize, k: usize) -> f64 {
        (0..k).fold(1.0, |ways, it| ways * (n - it) as f64 / (it + 1) as f64)
    }

    /// Chance that `lost` of `sent` packets are lost, each with probability `p`.
    fn lose(p: f64, sent: usize, lost: usize) -> f64 {
        binomial(sent, lost) * p.powi(lost as i32) * (1.0 - p).powi((sent - lost) as i32)
    }

    /// Hairpin's transition, of block codes: more losses than repair packets leave the lost data missing,
    /// and what arrived of the repair packets is of no further use.
    fn block(p: f64, missing: usize, b: usize) -> Chances {
        let left = |n: usize| {
            let spoiled: f64 =
                (0..=b).filter(|lost| lost + n > b).map(|lost| lose(p, b, lost)).sum();
            lose(p, missing, n) * spoiled
        };
        let mut chances: Chances = (0..=missing).map(left).collect();
        chances[0] = 1.0 - chances[1..].iter().sum::<f64>();
        chances
    }

    /// Number of further packets that a plan chooses.
    fn chosen(plan: &Plan, p: f64, cost: f64, left: usize, missing: usize) -> usize {
        let frame = plan.packets as f64;
        let value = |b: usize| {
            expected(block(p, missing, b).into_iter(), plan.layer(left - 1))
                - cost * b as f64 / frame
        };
        let mut best = (0, f64::NEG_INFINITY);
        for b in further(missing) {
            if value(b) > best.1 {
                best = (b, value(b));
            }
        }
        best.0
    }

    /// By loss and rounds left, further packets for 1, 2, 5 and 10 missing ones.
    const PUBLISHED: [(f64, [[usize; 4]; 4]); 3] = [
        (0.01, [[2, 2, 3, 3], [0; 4], [0; 4], [0; 4]]),
        (0.05, [[3, 4, 5, 6], [0, 0, 0, 1], [0; 4], [0; 4]]),
        (0.2, [[5, 8, 10, 20], [1, 1, 2, 4], [0; 4], [0; 4]]),
    ];

    // Source: the published model (fec_w_rtx.py), run with its beta list, c = 1e-4 and a frame of 10:
    // the number of repair packets with 1 to 4 rounds left, for 1, 2, 5 and 10 packets missing.
    #[test]
    fn the_table_is_the_published_one() {
        for (p, published) in PUBLISHED {
            let plan = Plan::new(10, 1e-4, [p; 2], |k, b| block(p, k, b));
            for (left, row) in published.iter().enumerate() {
                let ours = [1, 2, 5, 10].map(|k| chosen(&plan, p, 1e-4, left + 1, k));
                assert_eq!(ours, *row, "{p}, {} rounds left", left + 1);
            }
        }
    }

    // Of a block that cannot be decoded only data counts; of a window each packet that arrives does.
    #[test]
    fn a_window_leaves_no_more_missing_than_a_block() {
        for p in [0.01, 0.1, 0.3] {
            for (missing, b) in (1..=10).flat_map(|k| further(k).map(move |b| (k, b))) {
                let arrivals = Arrivals::new([p; 2], p).after(missing + b);
                let (window, block) =
                    (missing_after(missing, arrivals.iter()), block(p, missing, b));
                assert!((window[0] - block[0]).abs() < 1e-12);
                for most in 0..=missing {
                    let within = |chances: &Chances| chances[..=most].iter().sum::<f64>();
                    assert!(within(&window) >= within(&block) - 1e-12);
                }
            }
        }
    }

    fn run(missing: u32, fresh: bool) -> Run {
        let unit = Unit { carried_by: PathSet::only(PathId(0)), ..UNIT };
        Run { missing, ..Run::of(7, &unit, Instant::ZERO, fresh) }
    }

    fn losing(scheduler: &mut dyn Scheduler, path: u8, lost: impl Fn(i64) -> bool) {
        for packet in 0..8000 {
            let delay = (!lost(packet)).then_some(Duration::ZERO);
            scheduler.on_settled(Instant::ZERO, PathId(path), Instant::ZERO, delay);
        }
    }

    #[test]
    fn repairs_are_few_at_first_and_many_in_the_last_round() {
        let config = |within_ms| Config {
            within: Some(Duration::from_millis(within_ms)),
            ..Config::default()
        };
        let sent = |within_ms| {
            let mut scheduler = config(within_ms).build();
            for path in 0..2 {
                losing(&mut *scheduler, path, |packet| packet * 7919 % 20 == 1);
            }
            scheduler.repair(Instant::ZERO, &run(10, true), &paths(&[50, 60])).paths.len()
        };
        assert!(sent(300) < sent(60), "{} {}", sent(300), sent(60));
        assert!(sent(60) >= 3, "{}", sent(60));
    }

    // Path 0 loses in bursts of 20, and its last packet was lost: what leaves now goes to path 1.
    #[test]
    fn a_path_that_is_off_carries_no_repair() {
        let mut scheduler =
            Config { within: Some(Duration::from_millis(100)), ..Config::default() }.build();
        losing(&mut *scheduler, 0, |packet| packet % 200 >= 180);
        losing(&mut *scheduler, 1, |packet| packet % 100 == 50);
        let both = Run { carried_by: [0, 1].map(PathId).into_iter().collect(), ..run(5, false) };
        let repairs = scheduler.repair(Instant::ZERO, &both, &paths(&[50, 60]));
        assert!(repairs.paths.len() >= 5, "{repairs:?}");
        assert!(repairs.paths.iter().all(|path| *path == PathId(1)), "{repairs:?}");
    }
}
