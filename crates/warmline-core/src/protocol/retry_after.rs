//! `Retry-After`: how long a server asks us to wait, in seconds or until a date in one of the three
//! forms of HTTP.

use std::time::Duration;

/// The longest wait that a date can ask for; clocks differ, and some are far off.
const MAX_DATE_WAIT_SECONDS: u64 = 60 * 60;

/// How long to wait, at this moment of the wall clock (seconds since 1970, UTC).
pub fn read_retry_after(value: &str, now: u64) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let wait = read_date(value)?
        .saturating_sub(now)
        .min(MAX_DATE_WAIT_SECONDS);
    Some(Duration::from_secs(wait))
}

/// Seconds since 1970 of an HTTP date.
fn read_date(text: &str) -> Option<u64> {
    let parts: Vec<&str> = text
        .split([' ', ',', '-'])
        .filter(|part| !part.is_empty())
        .collect();
    match parts.as_slice() {
        // Sun, 06 Nov 1994 08:49:37 GMT, and Sunday, 06-Nov-94 08:49:37 GMT
        [_, day, month, year, time, "GMT"] => unix_time(year, month, day, time),
        // Sun Nov  6 08:49:37 1994
        [_, month, day, time, year] => unix_time(year, month, day, time),
        _ => None,
    }
}

fn unix_time(year: &str, month: &str, day: &str, time: &str) -> Option<u64> {
    let month = MONTHS.iter().position(|name| *name == month)?;
    let (year, day) = (full_year(year)?, parse_number(day, 1..=31)?);
    let mut clock = time.split(':');
    let mut next = |most| parse_number(clock.next()?, 0..=most);
    let (hour, minute, second) = (next(23)?, next(59)?, next(60)?);
    if clock.next().is_some() {
        return None;
    }
    let days = days_since_1970(year, month + 1, day)?;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Two digits mean the year of that ending which is not more than 50 years from now; for as long
/// as this form is met, that is this century.
fn full_year(text: &str) -> Option<u64> {
    match text.len() {
        2 => parse_number(text, 0..=99).map(|year| year + 2000),
        4 => parse_number(text, 1970..=9999),
        _ => None,
    }
}

fn parse_number(text: &str, range: std::ops::RangeInclusive<u64>) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let value = text.parse().ok().filter(|_| digits)?;
    range.contains(&value).then_some(value)
}

fn days_since_1970(year: u64, month: usize, day: u64) -> Option<u64> {
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let before = DAYS_BEFORE.get(month.checked_sub(1)?)?;
    let leap_day = u64::from(is_leap && month > 2);
    let years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    Some(years + before + leap_day + day - 1)
}

const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const DAYS_BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read_in_the_three_forms_of_http() {
        let forms = ["Sun, 06 Nov 1994 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"];
        for text in forms {
            assert_eq!(read_date(text), Some(784_111_777), "{text}");
        }
        let table = [
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Tue, 29 Feb 2000 12:00:00 GMT", 951_825_600),
            ("Wednesday, 01-Mar-28 00:00:00 GMT", 1_835_481_600),
            ("Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_800),
            ("Fri, 01 Jan 2100 00:00:00 GMT", 4_102_444_800),
            ("Mon, 01 Mar 2100 00:00:00 GMT", 4_107_542_400),
        ];
        for (text, seconds) in table {
            assert_eq!(read_date(text), Some(seconds), "{text}");
        }
    }

    #[test]
    fn what_is_no_date_asks_for_nothing() {
        let table = [
            "",
            "soon",
            "-1",
            "1.5",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 6 Now 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37:00 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, 32 Nov 1994 08:49:37 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 194 08:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "99999999999999999999999",
        ];
        for text in table {
            assert_eq!(read_retry_after(text, 0), None, "{text}");
        }
    }

    #[test]
    fn a_wait_is_never_negative_and_a_date_asks_for_an_hour_at_most() {
        let now = 784_111_777;
        let at = |time: &str| format!("Sun, 06 Nov 1994 {time} GMT");
        let table = [
            ("7".to_owned(), 7),
            (" 120 ".to_owned(), 120),
            (at("08:49:37"), 0),
            (at("08:49:44"), 7),
            (at("07:00:00"), 0),
            (at("23:00:00"), 3600),
        ];
        for (text, seconds) in table {
            let wait = read_retry_after(&text, now);
            assert_eq!(wait, Some(Duration::from_secs(seconds)), "{text}");
        }
    }
}
