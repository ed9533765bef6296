//! Whose a resource is: its URI stays what it is, so the servers' own lists have to say.
//!
//! Asked by: the faces, with the URI of a resource, or the template that a completion is about.
//! A URI that stands in a list is the first server's that lists it. Else it is whose template it
//! fits best. Else it concerns those that list something of its scheme, and nobody else hears of
//! it; a scheme that nobody lists may be anybody's, because a tool may hand out what its server
//! lists nowhere (mcp-spec 8.7.1). Where several are left they are asked for it, each as at its own
//! place: the rules hold there, and the audit has a line of each.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{join, join_all};
use futures_util::stream::FuturesOrdered;
use http::{HeaderName, HeaderValue};
use serde_json::json;
use warmline::core::era::Era;
use warmline::core::names;
use warmline::core::protocol::params::Params;
use warmline::{Call, List, ServerHandle, clock};

use super::Member;
use super::absent::{self, Absences, Asked, LeftOut, Why};
use super::lists::{self, Item};
use crate::face::Visit;
use crate::pass::Pass;
use crate::trace;

/// How a resource is asked for. It changes nothing.
pub(crate) const READ: &str = "resources/read";

/// Who looks for a resource.
#[derive(Clone, Copy)]
pub(crate) struct Seeker<'a> {
    pub(crate) visit: &'a Visit<'a>,
    pub(crate) era: Era,
}

impl Seeker<'_> {
    /// Finds the servers that a resource may concern, in order. One alone has it, if it is there
    /// at all.
    pub(crate) async fn find(self, members: Vec<Member>, uri: &str) -> Vec<ServerHandle> {
        let asked = members.into_iter().map(|member| self.ask(member));
        let said: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
        let fits: Vec<_> = said.iter().map(|(_, said)| Fit::of(said, uri)).collect();
        let concerned = said.into_iter().zip(concerned(&fits));
        concerned
            .filter_map(|((server, _), is_concerned)| is_concerned.then_some(server))
            .collect()
    }

    /// Finds the server that is to be told something of a resource. Where no list says whose it
    /// is, it is read.
    pub(crate) async fn holder(self, members: Vec<Member>, uri: &str) -> Option<ServerHandle> {
        let mut found = self.find(members, uri).await;
        if found.len() < 2 {
            return found.pop();
        }
        let params = Params::of(&json!({ "uri": uri })).ok()?;
        let reading = found.into_iter().filter_map(|server| {
            let look = Look::at(self.visit, &server, &params)?;
            let read = look.read(server.request_raw(READ, params.clone()));
            Some(async move { read.await.map(|_| server) })
        });
        let reading = Vec::from_iter(reading);
        first_of(reading).await
    }

    /// What a server says of its resources; none where it has none, or does not say so in time.
    async fn ask(self, member: Member) -> Option<(ServerHandle, Said)> {
        let Member { name, reached } = member;
        let server = reached.ok()?;
        let Visit {
            shared, subject, ..
        } = self.visit;
        let absences = &shared.absences;
        let whom = absent::whom(subject, self.era, &name);
        let asked = Asked::List(List::Resources);
        let most = shared.options.list_share;
        let share = absences.share_of(&server, &whom, most).ok()?;
        let Ok(found) = clock::timeout(share, said(&server)).await else {
            let why = Why::Late;
            absences.left_out(whom.clone(), asked, &LeftOut { server: name, why });
            let answers = async move { said(&server).await.is_some() };
            Absences::look_for(shared, whom, asked, answers);
            return None;
        };
        if found.is_some() {
            absences.present(&whom, asked);
        }
        found.map(|said| (server, said))
    }
}

/// One of several servers that may have a resource, about to be asked for it.
pub(crate) struct Look {
    server: ServerHandle,
    pass: Pass,
    trace: Vec<(HeaderName, HeaderValue)>,
    share: Duration,
}

impl Look {
    /// None where the rules say no.
    pub(crate) fn at(visit: &Visit<'_>, server: &ServerHandle, params: &Params) -> Option<Self> {
        let pass = visit.pass(server.name(), READ, params).ok()?;
        Some(Self {
            server: server.clone(),
            pass: pass.of_several(),
            trace: trace::passed_on(visit.head, params).collect(),
            share: visit.shared.options.list_share,
        })
    }

    /// What it has; none where it has nothing, or does not say so within its share.
    pub(crate) async fn read(self, call: Call<Bytes>) -> Option<Bytes> {
        let reading = call.headers(self.trace).into_future();
        match clock::timeout(self.share, reading).await {
            Ok(outcome) => self.pass.ended(&self.server, outcome).ok(),
            Err(_) => {
                self.pass.late();
                None
            },
        }
    }
}

/// What the first of several has, in their order. They are asked all at once: one that hangs takes
/// no more than its share, however many do. What is not needed any more is given up.
pub(crate) async fn first_of<T, F>(looks: Vec<F>) -> Option<T>
where
    F: Future<Output = Option<T>>,
{
    let mut asked = FuturesOrdered::from_iter(looks);
    while let Some(answered) = asked.next().await {
        if answered.is_some() {
            return answered;
        }
    }
    None
}

/// What a server lists of resources.
struct Said {
    resources: Arc<[Item]>,
    templates: Arc<[Item]>,
}

/// None where it has none, or cannot be asked.
async fn said(server: &ServerHandle) -> Option<Said> {
    if !lists::can(server, "resources").await.ok()? {
        return None;
    }
    let resources = lists::known_items(server, List::Resources);
    let templates = lists::known_items(server, List::Templates);
    let (resources, templates) = join(resources, templates).await;
    // Many know no templates, and some list nothing at all.
    Some(Said {
        resources: resources.unwrap_or_else(|_| Arc::from([])),
        templates: templates.unwrap_or_else(|_| Arc::from([])),
    })
}

/// How well a URI fits what a server lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fit {
    Not,
    /// It lists something of that scheme.
    Scheme,
    /// A template of it fits, which says so many characters of the URI itself.
    Template(usize),
    Listed,
}

impl Fit {
    fn of(said: &Said, uri: &str) -> Self {
        let all = said.resources.iter().chain(&*said.templates);
        let mut names = all.map(|item| &*item.name);
        if names.clone().any(|name| name == uri) {
            return Self::Listed;
        }
        let templates = said.templates.iter().map(|item| pattern(&item.name));
        let fitting = templates.filter(|(pattern, _)| names::is_like(pattern, uri));
        if let Some(said) = fitting.map(|(_, said)| said).max() {
            return Self::Template(said);
        }
        let scheme = uri.split_once(':').map(|(scheme, _)| scheme);
        let is_same = |name: &str| name.split_once(':').map(|(scheme, _)| scheme) == scheme;
        if scheme.is_some() && names.any(is_same) {
            Self::Scheme
        } else {
            Self::Not
        }
    }
}

/// Which of some servers a URI may concern, by how well it fits what each of them lists.
fn concerned(fits: &[Fit]) -> Vec<bool> {
    let best = fits.iter().max().copied().unwrap_or(Fit::Not);
    let is_sure = best > Fit::Scheme;
    let first = fits.iter().position(|fit| *fit == best);
    let each = fits.iter().enumerate();
    each.map(|(place, fit)| *fit == best && (!is_sure || Some(place) == first))
        .collect()
}

/// A template of URIs with a star for each of its expressions, and how much of it is no star.
fn pattern(template: &str) -> (String, usize) {
    let (mut pattern, mut said, mut is_inside) = (String::new(), 0, false);
    for letter in template.chars() {
        match (letter, is_inside) {
            ('{', false) => {
                is_inside = true;
                pattern.push('*');
            },
            ('}', true) => is_inside = false,
            (_, true) => {},
            (plain, false) => {
                pattern.push(plain);
                said += 1;
            },
        }
    }
    (pattern, said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(resources: &[&str], templates: &[&str]) -> Said {
        let items = |names: &[&str]| names.iter().map(|name| Item::for_tests(name)).collect();
        Said {
            resources: items(resources),
            templates: items(templates),
        }
    }

    #[test]
    fn a_uri_concerns_those_whose_lists_say_so() {
        let all = [
            said(&["note:///a"], &["file:///{path}"]),
            said(
                &["note:///b", "db://x"],
                &["file:///home/{name}", "q:{?a,b}"],
            ),
            said(&["note:///a"], &[]),
            said(&[], &[]),
        ];
        let cases: [(&str, &[usize]); 10] = [
            ("note:///a", &[0]),
            ("note:///b", &[1]),
            ("file:///etc/x", &[0]),
            ("file:///home/me", &[1]),
            ("file:///home/{name}", &[1]),
            ("q:?a=1", &[1]),
            ("db://y", &[1]),
            ("note:///c", &[0, 1, 2]),
            ("gone://x", &[0, 1, 2, 3]),
            ("no uri", &[0, 1, 2, 3]),
        ];
        for (uri, expected) in cases {
            let fits: Vec<_> = all.iter().map(|said| Fit::of(said, uri)).collect();
            let concerned = concerned(&fits).into_iter().enumerate();
            let concerned = concerned.filter_map(|(place, is_it)| is_it.then_some(place));
            assert_eq!(concerned.collect::<Vec<_>>(), expected, "{uri}");
        }
        assert_eq!(concerned(&[]), Vec::<bool>::new());
    }

    /// All are asked at once, and the first in order that has it counts.
    #[tokio::test(start_paused = true)]
    async fn the_first_in_order_that_has_something_counts() {
        type Answer = (u64, Option<&'static str>);
        let cases: [(&[Answer], Option<&str>, u64); 4] = [
            (&[(1, None), (3, Some("b")), (2, Some("c"))], Some("b"), 3),
            (&[(1, Some("a")), (9, Some("b"))], Some("a"), 1),
            (&[(1, None), (9, None)], None, 9),
            (&[], None, 0),
        ];
        for (answers, expected, takes) in cases {
            let began = clock::now();
            let looks = answers.iter().map(|(after, answer)| async {
                clock::sleep(Duration::from_secs(*after)).await;
                *answer
            });
            assert_eq!(first_of(looks.collect()).await, expected);
            assert_eq!(began.elapsed().as_secs(), takes, "{expected:?}");
        }
    }
}
