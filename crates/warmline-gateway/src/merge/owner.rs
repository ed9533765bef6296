//! Whose a resource is: its URI stays what it is, so the servers' own lists have to say.
//!
//! Asked by: the faces, with the URI of a resource, or the template that a completion is about.
//! A URI that stands in a list is the first server's that lists it. Else it is whose template it
//! fits best; else the one's who alone lists something of that scheme.

use std::sync::Arc;

use futures_util::future::{join, join_all};
use warmline::core::era::Era;
use warmline::core::names;
use warmline::{List, ServerHandle, clock};

use super::Member;
use super::absent::{self, Absences, Asked, LeftOut, Why};
use super::lists::{self, Item};
use crate::Shared;
use crate::who::Subject;

/// What the servers say of a URI.
pub(crate) struct Found {
    /// Whose it is; none where nobody can tell.
    pub(crate) owner: Option<String>,
    /// The servers that have resources, in order.
    pub(crate) others: Vec<(String, ServerHandle)>,
}

/// Who looks for a resource.
#[derive(Clone, Copy)]
pub(crate) struct Seeker<'a> {
    pub(crate) shared: &'a Arc<Shared>,
    pub(crate) subject: &'a Subject,
    pub(crate) era: Era,
}

impl Seeker<'_> {
    /// Finds the server that has a resource.
    pub(crate) async fn find(self, members: Vec<Member>, uri: &str) -> Found {
        let asked = members.into_iter().map(|member| self.ask(member));
        let said: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
        let owner = owner(said.iter().map(|(_, _, said)| said), uri);
        let owner = owner.and_then(|place| said.get(place));
        Found {
            owner: owner.map(|(name, ..)| name.clone()),
            others: said
                .into_iter()
                .map(|(name, server, _)| (name, server))
                .collect(),
        }
    }

    /// What a server says of its resources; none where it has none, or does not say so in time.
    async fn ask(self, member: Member) -> Option<(String, ServerHandle, Said)> {
        let Member { name, reached } = member;
        let server = reached.ok()?;
        let absences = &self.shared.absences;
        let whom = absent::whom(self.subject, self.era, &name);
        let asked = Asked::List(List::Resources);
        let most = self.shared.options.list_share;
        let share = absences.share_of(&server, &whom, most).ok()?;
        let Ok(found) = clock::timeout(share, said(&server)).await else {
            let why = Why::Late;
            absences.left_out(whom.clone(), asked, &LeftOut { server: name, why });
            let answers = async move { said(&server).await.is_some() };
            Absences::look_for(self.shared, whom, asked, answers);
            return None;
        };
        if found.is_some() {
            absences.present(&whom, asked);
        }
        found.map(|said| (name, server, said))
    }
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
    let resources = lists::items(server, List::Resources);
    let templates = lists::items(server, List::Templates);
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

/// The place of the server that has a URI.
fn owner<'s>(all: impl Iterator<Item = &'s Said>, uri: &str) -> Option<usize> {
    let fits: Vec<Fit> = all.map(|said| Fit::of(said, uri)).collect();
    let best = *fits.iter().max()?;
    let mut places = (0..fits.len()).filter(|place| fits.get(*place) == Some(&best));
    let first = places.next()?;
    // Who alone has resources has this one, if it is there at all.
    let is_sure = fits.len() == 1 || best > Fit::Scheme;
    let is_alone = best == Fit::Scheme && places.next().is_none();
    (is_sure || is_alone).then_some(first)
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
    fn a_uri_is_whose_lists_say_so() {
        let all = [
            said(&["note:///a"], &["file:///{path}"]),
            said(
                &["note:///b", "db://x"],
                &["file:///home/{name}", "q:{?a,b}"],
            ),
            said(&["note:///a"], &[]),
        ];
        let cases = [
            ("note:///a", Some(0)),
            ("note:///b", Some(1)),
            ("file:///etc/x", Some(0)),
            ("file:///home/me", Some(1)),
            ("file:///home/{name}", Some(1)),
            ("q:?a=1", Some(1)),
            ("db://y", Some(1)),
            ("note:///c", None),
            ("gone://x", None),
            ("no uri", None),
        ];
        for (uri, expected) in cases {
            assert_eq!(owner(all.iter(), uri), expected, "{uri}");
        }
        assert_eq!(
            owner(all.iter().take(1), "gone://x"),
            Some(0),
            "who is alone"
        );
        assert_eq!(owner(all.iter().take(0), "note:///a"), None);
    }
}
