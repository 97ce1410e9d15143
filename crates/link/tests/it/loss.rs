//! Every loss model against its closed form.

use crate::common::{fates, mean, near, uplink};
use skybraid_link::Cause;

fn share(fates: &[Option<Cause>]) -> f64 {
    fates.iter().filter(|fate| fate.is_some()).count() as f64 / fates.len() as f64
}

/// Lengths of the runs of consecutive losses.
fn bursts(fates: &[Option<Cause>]) -> Vec<f64> {
    fates
        .split(|fate| fate.is_none())
        .filter(|run| !run.is_empty())
        .map(|run| run.len() as f64)
        .collect()
}

#[test]
fn uniform_loss_has_the_moments_of_a_bernoulli_trial() {
    let mut link = uplink("uplink = { rate = \"1Gbit/s\", loss = { uniform = \"2%\" } }");
    let fates = fates(&mut link, 1_000_000, 0.1, 1000);
    near(share(&fates), 0.02, 4.0 * (0.02f64 * 0.98 / 1e6).sqrt());
    let per_thousand: Vec<f64> = fates.chunks(1000).map(|chunk| share(chunk) * 1000.0).collect();
    near(crate::common::sd(&per_thousand).powi(2), 1000.0 * 0.02 * 0.98, 2.5);
    assert!(fates.iter().flatten().all(|cause| *cause == Cause::Random));
}

#[test]
fn certain_and_impossible_losses_are_exact() {
    let all = |loss: &str| {
        let toml = format!("uplink = {{ rate = \"1Gbit/s\", loss = {{ uniform = \"{loss}\" }} }}");
        share(&fates(&mut uplink(&toml), 10_000, 0.1, 1000))
    };
    assert_eq!(all("100%"), 1.0);
    assert_eq!(all("0%"), 0.0);
}

#[test]
fn bit_errors_give_the_packet_error_ratio() {
    let mut link = uplink("uplink = { rate = \"1Gbit/s\", loss = { bit_errors = 1e-5 } }");
    near(share(&fates(&mut link, 500_000, 0.1, 1000)), 0.0769, 0.0015);
    let mut link = uplink("uplink = { rate = \"1Gbit/s\", loss = { bit_errors = 1e-5 } }");
    near(share(&fates(&mut link, 500_000, 0.1, 100)), 1.0 - (1.0 - 1e-5f64).powi(800), 5e-4);
}

#[test]
fn gilbert_elliott_has_its_stationary_loss_and_geometric_bursts() {
    let mut link = uplink(
        "uplink = { rate = \"1Gbit/s\", loss = { gilbert_elliott = \
         { good_to_bad = \"1%\", bad_to_good = \"25%\" } } }",
    );
    let fates = fates(&mut link, 1_000_000, 0.1, 1000);
    near(share(&fates), 0.01 / 0.26, 0.0015);
    let bursts = bursts(&fates);
    near(mean(&bursts), 4.0, 0.08);
    near(crate::common::sd(&bursts).powi(2), 0.75 / 0.0625, 0.8);
    assert!(fates.iter().flatten().all(|cause| *cause == Cause::Burst));
}

#[test]
fn gilbert_elliott_loss_is_the_mean_of_its_two_states() {
    let mut link = uplink(
        "uplink = { rate = \"1Gbit/s\", loss = { gilbert_elliott = \
         { good_to_bad = \"2%\", bad_to_good = \"10%\", good_loss = \"1%\", bad_loss = \"40%\" } } }",
    );
    let fates = fates(&mut link, 1_000_000, 0.1, 1000);
    let bad = 0.02 / 0.12;
    near(share(&fates), bad * 0.4 + (1.0 - bad) * 0.01, 0.003);
    let random = fates.iter().filter(|fate| **fate == Some(Cause::Random)).count() as f64;
    near(random / 1e6, (1.0 - bad) * 0.01, 5e-4);
}

#[test]
fn on_off_loses_only_in_off_and_in_its_share_of_time() {
    let loss = "loss = { on_off = { on = { mean = \"6s\", sd = \"0.7071s\" }, \
                off = { mean = \"1s\", sd = \"0.3162s\" }, off_loss = \"50%\" } }";
    let mut link = uplink(&format!("uplink = {{ rate = \"1Gbit/s\", {loss} }}"));
    let found = fates(&mut link, 2_000_000, 10.0, 1000);
    near(share(&found), 0.5 / 7.0, 0.001);
    assert!(found.iter().flatten().all(|cause| *cause == Cause::Burst));
    // Runs start in ON; three standard deviations below the mean are 3.9 s.
    assert!(found.iter().take(300).all(Option::is_none));
}

#[test]
fn phases_of_on_off_have_the_configured_mean_and_variance() {
    let loss = "loss = { on_off = { on = { mean = \"6s\", sd = \"0.7071s\" }, \
                off = { mean = \"1s\", sd = \"0.3162s\" }, off_loss = \"100%\" } }";
    let mut link = uplink(&format!("uplink = {{ rate = \"1Gbit/s\", {loss} }}"));
    let found = fates(&mut link, 4_000_000, 5.0, 100);
    let off: Vec<f64> = bursts(&found).iter().map(|packets| packets * 0.005).collect();
    near(mean(&off), 1.0, 0.025);
    near(crate::common::sd(&off).powi(2), 0.1, 0.012);
    let on: Vec<f64> = found
        .split(|fate| fate.is_some())
        .filter(|run| !run.is_empty())
        .map(|run| run.len() as f64 * 0.005)
        .collect();
    near(mean(&on), 6.0, 0.05);
    near(crate::common::sd(&on).powi(2), 0.5, 0.05);
}

#[test]
fn on_off_losses_add_up_by_their_share_of_time() {
    let loss = "loss = { on_off = { on = { mean = \"6s\", sd = \"0.7071s\" }, \
                off = { mean = \"1s\", sd = \"0.3162s\" }, off_loss = \"10%\", on_bit_errors = 1e-6 } }";
    let mut link = uplink(&format!("uplink = {{ rate = \"1Gbit/s\", {loss} }}"));
    let found = fates(&mut link, 2_000_000, 10.0, 1000);
    near(share(&found), (0.1 + 6.0 * 7.97e-3) / 7.0, 5e-4);
    assert!(found.iter().flatten().any(|cause| *cause == Cause::Random));
}

#[test]
fn several_losses_combine_and_the_first_names_the_cause() {
    let mut link = uplink(
        "uplink = { rate = \"1Gbit/s\", loss = [{ gilbert_elliott = { good_to_bad = \"100%\", \
         bad_to_good = \"0%\", bad_loss = \"20%\" } }, { uniform = \"10%\" }] }",
    );
    let fates = fates(&mut link, 500_000, 0.1, 1000);
    near(share(&fates), 1.0 - 0.8 * 0.9, 0.003);
    let random = fates.iter().filter(|fate| **fate == Some(Cause::Random)).count() as f64;
    near(random / 5e5, 0.8 * 0.1, 0.002);
}

#[test]
fn enabling_one_loss_does_not_change_another() {
    let random = |toml: &str| -> Vec<bool> {
        let fates = fates(&mut uplink(toml), 50_000, 0.1, 1000);
        fates.iter().map(|fate| *fate == Some(Cause::Random)).collect()
    };
    let alone = random("uplink = { rate = \"1Gbit/s\", loss = { uniform = \"3%\" } }");
    let with_bursts = random(
        "uplink = { rate = \"1Gbit/s\", loss = [{ uniform = \"3%\" }, { gilbert_elliott = \
         { good_to_bad = \"1%\", bad_to_good = \"10%\" } }] }",
    );
    let with_harq = random(
        "uplink = { rate = \"1Gbit/s\", loss = { uniform = \"3%\" }, harq = { loss = \"5%\" } }",
    );
    let with_delay = random(
        "uplink = { rate = \"1Gbit/s\", loss = { uniform = \"3%\" }, delay = { mean = \"9ms\" } }",
    );
    let with_handover = random(
        "handover = { interval = { mean = \"1s\" }, interruption = \"5ms\", at_least = \"1ms\" }\n\
         uplink = { rate = \"1Gbit/s\", loss = { uniform = \"3%\" } }",
    );
    for other in [with_bursts, with_harq, with_delay, with_handover] {
        assert!(alone == other);
    }
}
