use super::*;

fn chunk(dsn: u64) -> Chunk {
    let carried_by = PathSet::EMPTY;
    let first_message = (dsn / 1000) as u32;
    Chunk { dsn, len: 1000, first_message, messages: 1, stream: 0, tail: false, carried_by }
}

fn board_with(segments: u64, detection: LossDetection) -> Scoreboard {
    let mut board = Scoreboard::new(1000, detection, true);
    for number in 0..segments {
        board.on_sent(Instant::ZERO, chunk(number * 1000));
    }
    board
}

fn board(segments: u64) -> Scoreboard {
    board_with(segments, LossDetection::Sack)
}

fn acknowledge(board: &mut Scoreboard, now: Instant, ack: u64, sacks: &Sacks) -> Progress {
    board.acknowledge(&Acknowledgement {
        now,
        ack,
        sacks,
        echo: now,
        may_be_duplicate: true,
        recovering: false,
        srtt: Duration::from_millis(100),
    })
}

fn sacks(ack: u64, blocks: &[(u64, u64)]) -> Sacks {
    let mut sacks = Sacks::NONE;
    for (start, end) in blocks {
        sacks.push(ack, start * 1000, end * 1000);
    }
    sacks
}

#[test]
fn a_segment_is_lost_once_three_above_it_are_acknowledged() {
    let mut board = board(10);
    let at = Instant::from_millis(100);
    assert!(!acknowledge(&mut board, at, 0, &sacks(0, &[(1, 3)])).found_loss);
    let progress = acknowledge(&mut board, at, 0, &sacks(0, &[(1, 4)]));
    assert!(progress.found_loss);
    assert_eq!(progress.delivered, 1000);
    assert_eq!(board.in_flight(), 6000);
    assert_eq!(board.next_lost().map(|(seq, _)| seq), Some(0));
    board.on_retransmitted(at);
    assert_eq!((board.in_flight(), board.lost()), (7000, 0));
}

#[test]
fn all_holes_below_the_third_highest_sacked_segment_are_lost() {
    let mut board = board(10);
    let at = Instant::from_millis(100);
    acknowledge(&mut board, at, 0, &sacks(0, &[(6, 9), (3, 4), (1, 2)]));
    let mut lost = alloc::vec::Vec::new();
    while let Some((seq, _)) = board.next_lost() {
        lost.push(seq / 1000);
        board.on_retransmitted(at);
    }
    assert_eq!(lost, [0, 2, 4, 5]);
}

#[test]
fn a_retransmission_is_lost_once_a_later_segment_has_arrived() {
    let mut board = board(10);
    let at = Instant::from_millis(100);
    acknowledge(&mut board, at, 0, &sacks(0, &[(1, 4)]));
    board.next_lost();
    board.on_retransmitted(at);
    acknowledge(&mut board, Instant::from_millis(101), 0, &sacks(0, &[(1, 10)]));
    assert_eq!(board.lost(), 0);
    let later = Instant::from_millis(130);
    board.on_sent(later, chunk(10_000));
    acknowledge(&mut board, Instant::from_millis(230), 0, &sacks(0, &[(1, 11)]));
    assert_eq!(board.next_lost().map(|(seq, _)| seq), Some(0));
}

#[test]
fn an_acknowledgement_of_a_retransmission_gives_no_sample() {
    let mut board = board(10);
    board.on_timeout(Instant::from_secs_f64(9.0), false, Duration::ZERO);
    board.next_lost();
    board.on_retransmitted(Instant::from_millis(300));
    let progress = acknowledge(&mut board, Instant::from_millis(400), 5000, &Sacks::NONE);
    assert_eq!((progress.advanced, progress.rtt), (5000, None));
    let progress = acknowledge(&mut board, Instant::from_millis(401), 6000, &Sacks::NONE);
    assert!(progress.rtt.is_some());
}

#[test]
fn an_acknowledgement_of_unsent_data_is_ignored() {
    let mut board = board(2);
    let progress = acknowledge(&mut board, Instant::ZERO, 99_000, &Sacks::NONE);
    assert_eq!(progress.advanced, 0);
    assert_eq!(board.in_flight(), 2000);
}

// Source: RFC 6582 §3.2; the vector of the algorithm reference, §1.2: ten segments in flight, 0 and
// 4 lost. Where the RFC inflates the window, the pipe shrinks; the difference between them is the
// same.
#[test]
fn a_partial_acknowledgement_without_sack_marks_the_next_hole() {
    let mut board = board_with(10, LossDetection::NewReno);
    let at = Instant::from_millis(100);
    let window = 5000;
    for duplicate in 1..=8 {
        let progress = acknowledge(&mut board, at, 0, &Sacks::NONE);
        assert_eq!(progress.found_loss, duplicate == 3);
        if progress.found_loss {
            assert_eq!(board.next_lost().map(|(seq, _)| seq), Some(0));
            board.on_retransmitted(at);
        }
        if duplicate > 3 && board.in_flight() < window {
            let dsn = board.next();
            board.on_sent(at, chunk(dsn));
        }
    }
    assert_eq!(board.next(), 13_000, "three new segments");
    let partial = acknowledge(&mut board, at, 4000, &Sacks::NONE);
    assert_eq!(partial.advanced, 4000);
    board.on_partial_ack();
    assert_eq!(board.next_lost().map(|(seq, _)| seq), Some(4000));
    board.on_retransmitted(at);
    assert_eq!(window - board.in_flight(), 1000, "cwnd 10 against 9 outstanding");
}

// Source: `TcpSocketBase::DupAck` and `TcpTxBuffer` of ns-3 of 2018 to 2020.
#[test]
fn ns3_counts_from_the_last_cumulative_acknowledgement() {
    for (detection, recovers) in [(LossDetection::Sack, true), (LossDetection::Ns3, false)] {
        let mut board = board_with(10, detection);
        let at = Instant::from_millis(100);
        acknowledge(&mut board, at, 0, &sacks(0, &[(1, 2)]));
        acknowledge(&mut board, at, 0, &sacks(0, &[(1, 2), (3, 4)]));
        acknowledge(&mut board, at, 2000, &sacks(2000, &[(3, 4)]));
        acknowledge(&mut board, at, 2000, &sacks(2000, &[(3, 5)]));
        let second = acknowledge(&mut board, at, 2000, &sacks(2000, &[(3, 6)]));
        assert_eq!(second.found_loss, recovers, "{detection:?}");
        assert_eq!(board.next_lost().map(|(seq, _)| seq), Some(2000), "retransmitted in any case");
    }
}

#[test]
fn ns3_recovers_at_the_third_news_of_segments_out_of_order() {
    let mut board = board_with(10, LossDetection::Ns3);
    let at = Instant::from_millis(100);
    for end in 2..=4 {
        let progress = acknowledge(&mut board, at, 0, &sacks(0, &[(1, end)]));
        assert_eq!(progress.found_loss, end == 4);
        assert!(!acknowledge(&mut board, at, 0, &sacks(0, &[(1, end)])).found_loss, "no news");
    }
    board.on_recovered();
    let progress = acknowledge(&mut board, at, 0, &sacks(0, &[(1, 5)]));
    assert!(!progress.found_loss, "the count begins at zero after a recovery");
}

#[test]
fn ns3_recovers_if_the_second_segment_is_lost() {
    let at = Instant::from_millis(100);
    for (first, recovers) in [(1, false), (2, true)] {
        let mut board = board_with(10, LossDetection::Ns3);
        let progress = acknowledge(&mut board, at, 0, &sacks(0, &[(first, first + 3)]));
        assert_eq!(progress.found_loss, recovers);
        assert_eq!(board.lost(), first * 1000);
    }
}

#[test]
fn ns3_repeats_a_retransmission_after_a_partial_acknowledgement() {
    let mut board = board_with(10, LossDetection::Ns3);
    let at = Instant::from_millis(100);
    acknowledge(&mut board, at, 0, &sacks(0, &[(1, 2), (3, 6)]));
    while board.next_lost().is_some() {
        board.on_retransmitted(at);
    }
    acknowledge(&mut board, at, 2000, &sacks(2000, &[(3, 6)]));
    board.on_partial_ack();
    assert_eq!(board.next_lost().map(|(seq, _)| seq), Some(2000));
}

// Source: RFC 8985 §6.2; the algorithm reference, §1.5.
#[test]
fn a_hole_is_lost_once_the_reordering_window_has_passed() {
    let mut board = Scoreboard::new(1000, LossDetection::Rack, true);
    for (ms, number) in [(0, 0), (5, 1), (6, 2)] {
        board.on_sent(Instant::from_millis(ms), chunk(number * 1000));
    }
    let at = Instant::from_millis(105);
    assert!(!acknowledge(&mut board, at, 0, &sacks(0, &[(1, 2)])).found_loss);
    assert_eq!(board.detect_at(), Instant::from_millis(125));
    assert!(!board.detect(Instant::from_millis(124), false, Duration::from_millis(100)));
    assert!(board.detect(Instant::from_millis(125), false, Duration::from_millis(100)));
    assert_eq!(board.next_lost().map(|(seq, _)| seq), Some(0));
}

proptest::proptest! {
    #[test]
    fn the_pipe_holds_what_is_neither_acknowledged_nor_lost(
        events in proptest::collection::vec((0u64..40, 0u64..40, 1u64..6, 0u8..4), 1..60)
    ) {
        let mut board = board(40);
        for (ack, start, length, what) in events {
            let at = Instant::from_millis(1);
            let ack = ack.max(board.una() / 1000);
            match what {
                0 => drop(acknowledge(&mut board, at, ack * 1000, &Sacks::NONE)),
                1 | 2 => {
                    let una = board.una();
                    let mut blocks = Sacks::NONE;
                    if start * 1000 > una {
                        blocks.push(una, start * 1000, (start + length) * 1000);
                    }
                    acknowledge(&mut board, at, una, &blocks);
                }
                _ => {
                    if board.next_lost().is_some() {
                        board.on_retransmitted(at);
                    } else {
                        board.on_timeout(Instant::from_secs_f64(9.0), false, Duration::ZERO);
                    }
                }
            }
            let counted: u64 = board
                .sent
                .iter()
                .filter(|sent| sent.state == State::InFlight)
                .map(|sent| u64::from(sent.chunk.len))
                .sum();
            proptest::prop_assert_eq!(board.in_flight(), counted);
            let lost: u64 = board
                .sent
                .iter()
                .filter(|sent| sent.state == State::Lost)
                .map(|sent| u64::from(sent.chunk.len))
                .sum();
            proptest::prop_assert_eq!(board.lost(), lost);
        }
    }
}
