//! Days of the Gregorian calendar.

/// Returns the days from 1970-01-01 to an existing day.
pub const fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is the last day of a year.
    let year = if month <= 2 { year - 1 } else { year };
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year
        - 719_468
}

/// Returns year, month and day of a number of days from 1970-01-01.
pub const fn date_of(days: i64) -> (i64, i64, i64) {
    // Eras of 400 years that start in March.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + if month <= 2 { 1 } else { 0 }, month, day)
}

/// Returns the number of days in a month; January is 1.
pub const fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_since_1970_include_leap_days() {
        assert_eq!(days_since_1970(1970, 1, 1), 0);
        assert_eq!(days_since_1970(2000, 3, 1), 11_017);
        assert_eq!(days_since_1970(2023, 5, 13), 19_490);
    }

    #[test]
    fn each_month_begins_on_the_day_after_the_previous_month() {
        for year in 1700..=2250 {
            for month in 1..=12 {
                let (next_year, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
                let last = days_since_1970(year, month, days_in_month(year, month));
                assert_eq!(last + 1, days_since_1970(next_year, next, 1));
                assert_eq!(date_of(last), (year, month, days_in_month(year, month)));
                assert_eq!(date_of(last + 1), (next_year, next, 1));
            }
        }
    }
}
