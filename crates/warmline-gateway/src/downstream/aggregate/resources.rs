//! Which server has a resource. A URI has no prefix, so the lists of the servers decide.
//!
//! A URI belongs to the first server that lists it, else to the server whose template fits best, else to
//! the servers that list something of its scheme. A scheme that no server lists may be any server's: a tool
//! may return a URI that its server does not list (mcp-spec 8.7.1). If several servers are left, they are all asked,
//! each under its own rules and with its own audit line.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{join, join_all};
use futures_util::stream::FuturesOrdered;
use serde_json::json;
use warmline_core::era::Era;
use warmline_core::message::params::Params;
use warmline_core::tool_names;
use warmline_engine::relay::{RelayCall as _, RelayHandle as _};
use warmline_engine::{CallBuilder, Error, ServerHandle};
use warmline_platform::clock;
use warmline_upstream::ListKind;

use super::AggregateMember;
use super::absent::{MemberQuery, MemberRequest};
use super::lists::{self, ListFreshness, ListItem};
use crate::downstream::{RequestContext, message};

/// Reads a resource. It changes nothing at the server.
pub(super) const READ_METHOD: &str = "resources/read";

/// Finds the server of a resource, for one caller.
#[derive(Clone, Copy)]
pub(super) struct ResourceLocator<'a> {
    pub(super) context: &'a RequestContext<'a>,
    pub(super) era: Era,
}

impl ResourceLocator<'_> {
    /// The servers that may have a resource, in order.
    pub(super) async fn find_candidates(
        self,
        members: Vec<AggregateMember>,
        uri: &str,
    ) -> Vec<ServerHandle> {
        let asked = members.into_iter().map(|member| self.query_member(member));
        let said: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
        let fits: Vec<_> = said
            .iter()
            .map(|(_, said)| ResourceMatch::classify(said, uri))
            .collect();
        let concerned = said.into_iter().zip(select_candidates(&fits));
        concerned
            .filter_map(|((server, _), is_concerned)| is_concerned.then_some(server))
            .collect()
    }

    /// The server that has a resource. Where the lists do not decide, it is read.
    pub(super) async fn find_owner(
        self,
        members: Vec<AggregateMember>,
        uri: &str,
    ) -> Option<ServerHandle> {
        let mut found = self.find_candidates(members, uri).await;
        if found.len() < 2 {
            return found.pop();
        }
        let params = Params::from_serialize(&json!({ "uri": uri })).ok()?;
        let reading = found.into_iter().filter_map(|server| {
            let call = server.request_raw(READ_METHOD, params.clone());
            let trace = message::trace_headers(self.context.head.headers, &params);
            let read = start_read(self.context, &server, &params, call.headers(trace))?;
            Some(async move { read.await.map(|_| server) })
        });
        let reading = Vec::from_iter(reading);
        first_in_order(reading).await
    }

    /// What a server lists; `None` where it has no resources, or is late.
    async fn query_member(
        self,
        member: AggregateMember,
    ) -> Option<(ServerHandle, ResourceListing)> {
        let server = member.handle.ok()?;
        let query = MemberQuery::new(self.context, self.era);
        let request = MemberRequest::ResourceLookup;
        let listing = query.ask(&server, request, load_listing(&server)).await;
        Some((server, listing.ok()??))
    }
}

/// Reads a resource at one of several servers that may have it: `None` where the server lacks it or is late.
/// There is no future where the rules forbid it.
pub(super) fn start_read(
    context: &RequestContext<'_>,
    server: &ServerHandle,
    params: &Params,
    call: CallBuilder<Bytes>,
) -> Option<impl Future<Output = Option<Bytes>> + Send + use<>> {
    let admission = context.admit(server.name(), READ_METHOD, params).ok()?;
    let admission = admission.without_cancellation();
    let (server, timeout) = (server.clone(), context.shared.options.list_share);
    Some(async move {
        match clock::timeout(timeout, call.into_future()).await {
            Ok(outcome) => admission.finish(&server, outcome).ok(),
            Err(_) => {
                admission.finish_timed_out();
                None
            },
        }
    })
}

/// The first result in order. All servers are asked at once, so that several that hang take no longer
/// than one. The other requests are cancelled.
pub(super) async fn first_in_order<T, F>(looks: Vec<F>) -> Option<T>
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

pub(super) struct ResourceListing {
    resources: Arc<[ListItem]>,
    templates: Arc<[ListItem]>,
}

/// `None` where the server has no resources.
pub(super) async fn load_listing(server: &ServerHandle) -> Result<Option<ResourceListing>, Error> {
    if !lists::has_capability(server, "resources").await? {
        return Ok(None);
    }
    let resources = lists::list_items(server, ListKind::Resources, ListFreshness::MayBeStale);
    let templates = lists::list_items(
        server,
        ListKind::ResourceTemplates,
        ListFreshness::MayBeStale,
    );
    let (resources, templates) = join(resources, templates).await;
    // Many servers have no templates, and some list nothing at all.
    Ok(Some(ResourceListing {
        resources: resources.unwrap_or_else(|_| Arc::from([])),
        templates: templates.unwrap_or_else(|_| Arc::from([])),
    }))
}

/// How well a URI fits the lists of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ResourceMatch {
    NoMatch,
    /// The server lists something of the scheme.
    Scheme,
    /// A template with this many literal characters fits.
    Template(usize),
    Listed,
}

impl ResourceMatch {
    fn classify(said: &ResourceListing, uri: &str) -> Self {
        let all = said.resources.iter().chain(&*said.templates);
        let mut names = all.map(|item| &*item.name);
        if names.clone().any(|name| name == uri) {
            return Self::Listed;
        }
        let templates = said
            .templates
            .iter()
            .map(|item| template_pattern(&item.name));
        let fitting = templates.filter(|(pattern, _)| tool_names::matches_pattern(pattern, uri));
        if let Some(said) = fitting.map(|(_, said)| said).max() {
            return Self::Template(said);
        }
        let scheme = uri.split_once(':').map(|(scheme, _)| scheme);
        let is_same = |name: &str| name.split_once(':').map(|(scheme, _)| scheme) == scheme;
        if scheme.is_some() && names.any(is_same) {
            Self::Scheme
        } else {
            Self::NoMatch
        }
    }
}

/// Which servers may have a URI, by how well it fits each.
fn select_candidates(fits: &[ResourceMatch]) -> Vec<bool> {
    let best = fits.iter().max().copied().unwrap_or(ResourceMatch::NoMatch);
    let is_sure = best > ResourceMatch::Scheme;
    let first = fits.iter().position(|fit| *fit == best);
    let each = fits.iter().enumerate();
    each.map(|(place, fit)| *fit == best && (!is_sure || Some(place) == first))
        .collect()
}

/// A URI template with a star for each expression, and the number of its literal characters.
fn template_pattern(template: &str) -> (String, usize) {
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
    use std::time::Duration;

    use super::*;

    fn said(resources: &[&str], templates: &[&str]) -> ResourceListing {
        let items = |names: &[&str]| names.iter().map(|name| ListItem::for_tests(name)).collect();
        ResourceListing {
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
            let fits: Vec<_> = all
                .iter()
                .map(|said| ResourceMatch::classify(said, uri))
                .collect();
            let concerned = select_candidates(&fits).into_iter().enumerate();
            let concerned = concerned.filter_map(|(place, is_it)| is_it.then_some(place));
            assert_eq!(concerned.collect::<Vec<_>>(), expected, "{uri}");
        }
        assert_eq!(select_candidates(&[]), Vec::<bool>::new());
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
            assert_eq!(first_in_order(looks.collect()).await, expected);
            assert_eq!(began.elapsed().as_secs(), takes, "{expected:?}");
        }
    }
}
