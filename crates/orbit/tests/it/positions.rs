//! Positions from element sets, compared with published and independent positions.

use skybraid_orbit::{Epoch, Satellite, read};
use skybraid_units::Duration;

fn apart(a: [f64; 3], b: [f64; 3]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt()
}

/// Position in km in SGP4's frame TEME, from the ECEF position and the sidereal angle.
fn in_teme(satellite: &Satellite, at: Epoch) -> [f64; 3] {
    let [x, y, z] = satellite.position(at).unwrap();
    let (sin, cos) = at.sidereal_angle().sin_cos();
    [(x * cos - y * sin) / 1000.0, (x * sin + y * cos) / 1000.0, z / 1000.0]
}

// Source: D. Vallado et al., "Revisiting Spacetrack Report #3", AIAA 2006-6753: verification element sets with their
// positions in km, at minutes from the epoch.
#[test]
fn positions_are_those_of_the_verification_set_of_sgp4() {
    let near_earth = "1 00005U 58002B   00179.78495062  .00000023  00000-0  28098-4 0  4753\n\
                      2 00005  34.2682 348.7242 1859667 331.7664  19.3264 10.82419157413667";
    let deep_space = "1 08195U 75081A   06176.33215444  .00000099  00000-0  11873-3 0   813\n\
                      2 08195  64.1586 279.0717 6877146 264.7651  20.2257  2.00491383225656";
    let low = "1 28350U 04020A   06167.21788666  .16154492  76267-5  18678-3 0  8894\n\
               2 28350  64.9977 345.6130 0024870 260.7578  99.9590 16.47856722116490";
    for (elements, vectors) in [
        (
            near_earth,
            [
                (0, [7_022.465_292_66, -1_400.082_967_55, 0.039_951_55]),
                (360, [-7_154.031_202_02, -3_783.176_825_04, -3_536.194_122_94]),
                (1440, [-938.559_239_43, -6_268.187_488_31, -4_294.029_247_51]),
            ],
        ),
        (
            deep_space,
            [
                (0, [2_349.894_833_50, -14_785.938_115_62, 0.021_193_78]),
                (120, [15_223.917_136_58, -17_852.958_817_13, 25_280.395_582_24]),
                (1440, [2_890.806_382_68, -15_446.439_523_00, 948.770_101_76]),
            ],
        ),
        (
            low,
            [
                (0, [6_333.081_231_28, -1_580.828_523_26, 90.693_557_21]),
                (120, [-3_990.938_458_55, 3_052.983_419_07, 4_155.327_006_29]),
                (1440, [-4_527.908_718_28, -723.291_990_41, -4_527.446_083_19]),
            ],
        ),
    ] {
        let satellite = read(elements).unwrap().remove(0);
        let epoch = satellite.elements_epoch().unwrap();
        for (minutes, expected) in vectors {
            let found = in_teme(&satellite, epoch + Duration::from_secs(60 * minutes));
            // Within 1 cm; the epoch is rounded to the nanosecond.
            assert!(apart(found, expected) < 1e-5, "{minutes} min: {found:?} {expected:?}");
        }
    }
}

// Source: skyfield 1.55 with its built-in tables of UT1 and polar motion: ITRS in m.
#[test]
fn ecef_positions_are_within_the_errors_of_ut1_and_poles() {
    let iss = "ISS (ZARYA)\n\
               1 25544U 98067A   20194.88612269 -.00002218  00000-0 -31515-4 0  9992\n\
               2 25544  51.6461 221.2784 0001413  89.1723 280.4612 15.49507896236008";
    let iss = read(iss).unwrap().remove(0);
    for (at, expected) in [
        ("2020-07-13T00:00:00Z", [-3_249_169.4, -3_039_813.8, -5_144_570.0]),
        ("2020-07-13T06:00:00Z", [2_022_634.4, 4_527_014.9, -4_655_673.9]),
        ("2020-07-13T12:00:00Z", [2_982_862.1, -5_922_324.7, -1_500_710.7]),
        ("2020-07-14T00:00:00Z", [3_448_005.2, 2_890_497.4, 5_083_586.3]),
    ] {
        let found = iss.position(Epoch::from_text(at).unwrap()).unwrap();
        // UT1 was 0.2 s behind UTC: 0.2 s · 7.29e-5 rad/s · 6770 km = 100 m; polar motion is 10 m.
        let off = apart(found, expected);
        assert!(off < 150.0, "{at}: {off} m");
    }
}
