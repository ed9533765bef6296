//! The text format of Prometheus, read strictly: what a scraper would take, and what it must not.

use std::collections::{BTreeMap, BTreeSet};

/// Labels of a sample, by name.
pub(crate) type Labels = BTreeMap<String, String>;

/// A page that was read whole.
#[derive(Debug, Default)]
pub(crate) struct Scraped {
    pub(crate) families: BTreeMap<String, Family>,
}

/// One metric with its samples.
#[derive(Debug, Default)]
pub(crate) struct Family {
    pub(crate) help: String,
    pub(crate) kind: String,
    pub(crate) samples: BTreeMap<(String, Labels), f64>,
}

impl Scraped {
    /// Reads a page; panics where it breaks the format.
    pub(crate) fn read(page: &str) -> Self {
        assert!(page.ends_with('\n'), "the last line ends as well");
        let mut scraped = Self::default();
        let mut current = String::new();
        for line in page.lines() {
            if let Some(said) = line.strip_prefix("# HELP ") {
                let (name, help) = said.split_once(' ').unwrap();
                assert!(is_name(name, ":"), "{line}");
                let family = Family {
                    help: help.to_owned(),
                    ..Family::default()
                };
                let before = scraped.families.insert(name.to_owned(), family);
                assert!(before.is_none(), "`{name}` stands in one place");
                name.clone_into(&mut current);
            } else if let Some(said) = line.strip_prefix("# TYPE ") {
                let (name, kind) = said.split_once(' ').unwrap();
                assert_eq!(name, current, "{line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                let family = scraped.families.get_mut(name).unwrap();
                let holds = family.kind.is_empty() && family.samples.is_empty();
                assert!(holds, "{line}");
                kind.clone_into(&mut family.kind);
            } else {
                let (name, labels, value) = sample(line);
                let family = scraped.families.get_mut(&current).unwrap();
                let holds = family.takes(&current, &name);
                assert!(holds, "{line} stands below {current}");
                let before = family.samples.insert((name, labels), value);
                assert!(before.is_none(), "{line} stands there once");
            }
        }
        for (name, family) in &scraped.families {
            family.check(name);
        }
        scraped
    }

    /// The one number of that name and these labels.
    pub(crate) fn number(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels.iter();
        let labels = labels.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let family = self.families.get(name);
        let family = family.unwrap_or_else(|| panic!("there is no `{name}`"));
        let found = family.samples.get(&(name.to_owned(), labels.collect()));
        *found.unwrap_or_else(|| panic!("`{name}` has no such labels: {family:?}"))
    }

    /// Every series there is: a name with its labels.
    pub(crate) fn series(&self) -> BTreeSet<(String, Labels)> {
        let all = self.families.values();
        all.flat_map(|family| family.samples.keys().cloned())
            .collect()
    }
}

impl Family {
    fn takes(&self, family: &str, sample: &str) -> bool {
        match self.kind.as_str() {
            "histogram" => ["_bucket", "_sum", "_count"]
                .iter()
                .any(|suffix| sample == format!("{family}{suffix}")),
            _ => sample == family,
        }
    }

    fn check(&self, name: &str) {
        assert!(!self.kind.is_empty() && !self.help.is_empty(), "{name}");
        if self.kind == "counter" {
            assert!(name.ends_with("_total"), "{name}");
        }
        if self.kind == "histogram" {
            self.check_buckets(name);
        }
        let is_whole = |value: &f64| *value >= 0.0 && value.is_finite();
        assert!(self.samples.values().all(is_whole), "{name}");
    }

    /// Buckets grow with their bounds, and the last one holds all.
    fn check_buckets(&self, name: &str) {
        let mut by_labels: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
        for ((sample, labels), count) in &self.samples {
            if sample.ends_with("_bucket") {
                let mut rest = labels.clone();
                let bound = number(&rest.remove("le").unwrap());
                by_labels.entry(rest).or_default().push((bound, *count));
            }
        }
        for (labels, mut buckets) in by_labels {
            buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
            let holds = buckets.is_sorted_by(|one, other| one.1 <= other.1);
            assert!(holds, "{name}");
            let last = buckets.last().unwrap();
            let count = self.samples[&(format!("{name}_count"), labels)];
            assert_eq!(*last, (f64::INFINITY, count), "{name}");
        }
    }
}

fn is_name(text: &str, more: &str) -> bool {
    let may = |letter: char| letter.is_ascii_alphabetic() || letter == '_' || more.contains(letter);
    text.starts_with(may)
        && text
            .chars()
            .all(|letter| may(letter) || letter.is_ascii_digit())
}

fn number(text: &str) -> f64 {
    match text {
        "+Inf" => f64::INFINITY,
        text => text.parse().unwrap(),
    }
}

fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).unwrap();
    let (name, rest) = line.split_at(end);
    assert!(is_name(name, ":"), "{line}");
    let (labels, value) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside),
        None => (Labels::new(), rest),
    };
    let value = value.strip_prefix(' ').unwrap();
    assert!(!value.contains(' '), "{line}");
    (name.to_owned(), labels, number(value))
}

/// The labels up to the brace that ends them, and what stands behind it.
fn labels(mut rest: &str) -> (Labels, &str) {
    let mut all = Labels::new();
    loop {
        let (name, value) = rest.split_once("=\"").unwrap();
        assert!(is_name(name, ""), "{name}");
        let (value, after) = quoted(value);
        assert!(all.insert(name.to_owned(), value).is_none(), "{name} twice");
        if let Some(after) = after.strip_prefix('}') {
            return (all, after);
        }
        rest = after.strip_prefix(',').unwrap();
    }
}

/// A value up to the quote that ends it, and what stands behind it.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((place, letter)) = letters.next() {
        match letter {
            '"' => return (value, text.get(place + 1..).unwrap()),
            '\\' => value.push(match letters.next().unwrap().1 {
                '\\' => '\\',
                '"' => '"',
                'n' => '\n',
                other => panic!("`\\{other}` is no escape"),
            }),
            other => value.push(other),
        }
    }
    panic!("a value has no end: {text}")
}
