//! Whose a resource is: its URI stays what it is, so the servers' own lists have to say.
//!
//! Asked by: the faces, with the URI of a resource, or the template that a completion is about.
//! A URI that stands in a list is the first server's that lists it. Else it is whose template it
//! fits best. That one alone lists something of its scheme is a guess: such a server is asked
//! first, and the others where it does not have it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{Either, join, join_all, select};
use futures_util::stream::FuturesOrdered;
use warmline::core::era::Era;
use warmline::core::names;
use warmline::{Error, List, ServerHandle, clock};

use super::Member;
use super::absent::{self, Absences, Asked, LeftOut, Why};
use super::lists::{self, Item};
use crate::Shared;
use crate::who::Subject;

/// What the servers say of a URI.
pub(crate) struct Found {
    pub(crate) owner: Owner,
    /// The servers that have resources, in order.
    pub(crate) all: Vec<Named>,
}

/// A server with its name.
pub(crate) type Named = (String, ServerHandle);

impl Found {
    /// The server that is to be asked first, apart from the others.
    pub(crate) fn parted(self) -> (Option<Named>, Vec<Named>) {
        let likely = self.owner.into_likely();
        let is_likely = |(name, _): &Named| Some(name) == likely.as_ref();
        let (mut first, others): (Vec<_>, Vec<_>) = self.all.into_iter().partition(is_likely);
        (first.pop(), others)
    }
}

/// Whose a resource is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// This server lists it, or has a template for it, or is the only one with resources.
    Sure(String),
    /// This server alone lists something of its scheme.
    Likely(String),
    /// Nobody can tell.
    Unknown,
}

impl Owner {
    /// The server that is to be asked first.
    pub(crate) fn likely(&self) -> Option<&str> {
        match self {
            Self::Sure(name) | Self::Likely(name) => Some(name),
            Self::Unknown => None,
        }
    }

    pub(crate) fn into_likely(self) -> Option<String> {
        match self {
            Self::Sure(name) | Self::Likely(name) => Some(name),
            Self::Unknown => None,
        }
    }
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
        let names = said
            .iter()
            .map(|(name, ..)| name.as_str())
            .collect::<Vec<_>>();
        let owner = owner(&names, said.iter().map(|(_, _, said)| said), uri);
        let all = said.into_iter().map(|(name, server, _)| (name, server));
        Found {
            owner,
            all: all.collect(),
        }
    }

    /// Finds the server that is to be told something of a resource. Where no list says whose it
    /// is, it is read: that changes nothing.
    pub(crate) async fn holder(self, members: Vec<Member>, uri: &str) -> Option<String> {
        let found = self.find(members, uri).await;
        if let Owner::Sure(name) = found.owner {
            return Some(name);
        }
        let share = self.shared.options.list_share;
        let reading = |(name, server): Named| async move {
            let read = server.read_resource(uri).await;
            read.map(|_| name)
        };
        let (first, others) = found.parted();
        let likely = first.as_ref().map(|(name, _)| name.clone());
        let others = others.into_iter().map(&reading);
        let holder = first_of(first.map(&reading), others, share).await;
        holder.and_then(Result::ok).or(likely)
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

/// What the first of several has: of the likely one, which has all the time it needs, or of the
/// others, where that one has nothing, or nothing yet when its share is over. They are asked all at
/// once: one that hangs takes no more than its share, however many do.
///
/// None where nobody answered at all; an error is that of the likely one, or the last.
pub(crate) async fn first_of<T, F>(
    likely: Option<F>,
    others: impl Iterator<Item = F>,
    share: Duration,
) -> Option<Result<T, Error>>
where
    F: Future<Output = Result<T, Error>>,
{
    let others = first_in_order(others, share);
    let mut others = std::pin::pin!(others);
    let Some(likely) = likely else {
        return others.await;
    };
    let mut likely = std::pin::pin!(likely);
    let refused = match clock::timeout(share, likely.as_mut()).await {
        Ok(Ok(read)) => return Some(Ok(read)),
        Ok(Err(error)) => error,
        Err(_) => match select(likely, others.as_mut()).await {
            Either::Left((Ok(read), _)) | Either::Right((Some(Ok(read)), _)) => {
                return Some(Ok(read));
            },
            Either::Left((Err(error), _)) => error,
            Either::Right((Some(Err(_)) | None, likely)) => return Some(likely.await),
        },
    };
    match others.await {
        Some(Ok(read)) => Some(Ok(read)),
        Some(Err(_)) | None => Some(Err(refused)),
    }
}

async fn first_in_order<T, F>(
    all: impl Iterator<Item = F>,
    share: Duration,
) -> Option<Result<T, Error>>
where
    F: Future<Output = Result<T, Error>>,
{
    let mut asked: FuturesOrdered<_> = all.map(|one| clock::timeout(share, one)).collect();
    let mut last = None;
    while let Some(answered) = asked.next().await {
        let Ok(answered) = answered else { continue };
        let is_there = answered.is_ok();
        last = Some(answered);
        if is_there {
            break;
        }
    }
    last
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

/// Whose a URI is, by what servers of these names list.
fn owner<'s>(names: &[&str], all: impl Iterator<Item = &'s Said>, uri: &str) -> Owner {
    let fits: Vec<(&str, Fit)> = names
        .iter()
        .zip(all)
        .map(|(name, said)| (*name, Fit::of(said, uri)))
        .collect();
    let Some(best) = fits.iter().map(|(_, fit)| *fit).max() else {
        return Owner::Unknown;
    };
    let mut fitting = fits.iter().filter(|(_, fit)| *fit == best);
    let first = fitting.next().map(|(name, _)| (*name).to_owned());
    match first {
        // Who alone has resources has this one, if it is there at all.
        Some(first) if fits.len() == 1 || best > Fit::Scheme => Owner::Sure(first),
        Some(first) if best == Fit::Scheme && fitting.next().is_none() => Owner::Likely(first),
        Some(_) | None => Owner::Unknown,
    }
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
    use warmline::core::code::Reason;
    use warmline::core::exchange::Trouble;

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
        let (sure, likely) = (
            |name: &str| Owner::Sure(name.to_owned()),
            |name: &str| Owner::Likely(name.to_owned()),
        );
        let cases = [
            ("note:///a", sure("a")),
            ("note:///b", sure("b")),
            ("file:///etc/x", sure("a")),
            ("file:///home/me", sure("b")),
            ("file:///home/{name}", sure("b")),
            ("q:?a=1", sure("b")),
            ("db://y", likely("b")),
            ("note:///c", Owner::Unknown),
            ("gone://x", Owner::Unknown),
            ("no uri", Owner::Unknown),
        ];
        let names = ["a", "b", "c"];
        for (uri, expected) in cases {
            assert_eq!(owner(&names, all.iter(), uri), expected, "{uri}");
        }
        let alone = owner(&names, all.iter().take(1), "gone://x");
        assert_eq!(alone, sure("a"), "who is alone");
        let nobody = owner(&names, all.iter().take(0), "note:///a");
        assert_eq!(nobody, Owner::Unknown);
    }

    /// Who is likely has all its time; the others are asked when it has nothing, or is late.
    #[tokio::test(start_paused = true)]
    async fn who_is_likely_is_asked_first_and_has_its_time() {
        const SHARE: Duration = Duration::from_secs(10);
        type Answer = (u64, Result<&'static str, ()>);
        type Case = (
            Option<Answer>,
            &'static [Answer],
            Option<Result<&'static str, ()>>,
            u64,
        );
        const NO: Result<&str, ()> = Err(());
        const NEVER: u64 = 1 << 40;
        let answering = |(after, answer): Answer| async move {
            clock::sleep(Duration::from_secs(after)).await;
            let nobody = || Error::unsent(Trouble::new(Reason::Internal, "not here"));
            answer.map_err(|()| nobody())
        };
        #[rustfmt::skip]
        let cases: [Case; 9] = [
            (Some((1, Ok("likely"))), &[(1, Ok("other"))], Some(Ok("likely")), 1),
            (Some((30, Ok("likely"))), &[(1, NO)], Some(Ok("likely")), 30),
            (Some((30, Ok("likely"))), &[(1, Ok("other"))], Some(Ok("other")), 11),
            (Some((1, NO)), &[(1, Ok("other"))], Some(Ok("other")), 2),
            (Some((12, NO)), &[(5, Ok("other"))], Some(Ok("other")), 15),
            (Some((1, NO)), &[(1, NO), (NEVER, Ok("late"))], Some(NO), 11),
            (None, &[(1, NO), (3, Ok("second")), (2, Ok("third"))], Some(Ok("second")), 3),
            (None, &[(NEVER, NO)], None, 10),
            (None, &[], None, 0),
        ];
        for (likely, others, expected, takes) in cases {
            let began = clock::now();
            let others = others.iter().map(|other| answering(*other));
            let read = first_of(likely.map(answering), others, SHARE).await;
            let read = read.map(|read| read.map_err(|_| ()));
            assert_eq!(read, expected);
            assert_eq!(began.elapsed().as_secs(), takes, "{expected:?}");
        }
    }
}
