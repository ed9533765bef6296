//! Towards servers: opens sessions of either era over HTTP or stdio, and knows what became of
//! every request.
//!
//! | question | file |
//! |---|---|
//! | How is the era found out? | `detect.rs` |
//! | What does a call of each era look like? | `legacy.rs`, `modern.rs`, `pipes.rs` |
//! | Which arguments travel in headers as well? | `mirrors.rs` |
//! | What does a reply mean for the request? | `answer.rs` (and `warmline_core::protocol::status`) |
//! | What did the handshake get? | `greeting.rs` |
//! | How are questions answered and calls cancelled over HTTP? | `voice.rs`, `answers.rs` |
//! | Whose message is it, on a standing stream? | `calls.rs` |
//! | What is remembered of a server? | `verdicts.rs` |
//! | What is known of a session? | `facts.rs` |
//! | Which leg of a server is taken? | `contact.rs` |
//! | Who hears what belongs to no call? | `notices.rs` |
//! | Is an idle session still there? | `probe.rs` |
//! | How are streams read and resumed? | `stream.rs`, `legacy.rs` |
//! | Where is a server, and which headers does a request carry? | `way.rs`, `letterhead.rs` |
//! | How do bytes travel over HTTP? | `http.rs`, `connections.rs`, `tls.rs` |
//! | How do bytes travel over a child's pipes? | `stdio.rs` |
//! | How does a child start and die? | `process.rs`, `warden.rs`, `path.rs`, `environment.rs` |

mod answer;
mod answers;
mod aside;
mod calls;
mod children;
mod connections;
mod contact;
mod detect;
pub(crate) mod environment;
mod facts;
mod fair;
mod greeting;
mod hidden;
mod http;
mod legacy;
mod letterhead;
mod limits;
mod listener;
mod lists;
mod mirrors;
mod modern;
mod notices;
mod pace;
pub(crate) mod path;
mod pipes;
mod probe;
pub(crate) mod process;
mod rounds;
pub(crate) mod server;
mod session;
pub(crate) mod stderr;
mod stdio;
mod stream;
mod survey;
mod tls;
mod two_endpoints;
mod unheard;
mod verdicts;
mod voice;
pub mod warden;
mod way;
mod whose;
mod wording;

use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderName, HeaderValue};
use warmline_core::exchange::Trouble;

pub use self::contact::{Contact, Legs};
pub(crate) use self::environment::is_variable_name;
pub use self::environment::withheld;
pub use self::facts::{Evidence, Facts, Kept};
pub(crate) use self::legacy::Stood;
pub use self::listener::{Asked, Listener, Roomy};
pub use self::lists::List;
pub(crate) use self::lists::{Pages, is_usable};
pub(crate) use self::notices::concerns_all;
pub use self::notices::{Notices, Speaker};
pub use self::pace::Pace;
pub use self::path::FoundBy;
pub use self::probe::{Probe, Probed};
pub(crate) use self::server::holds_a_login;
pub use self::server::{
    HeaderSource, HttpReach, Reach, Renewing, Server, Sizes, StdioReach, Tether, Times, parse_url,
};
pub use self::session::{Declared, Session};
pub use self::stdio::{ChildEnded, ChildReport};
pub use self::survey::{Leg, Survey};
pub use self::verdicts::Verdict;
pub use self::whose::Whose;
pub use crate::net::{ByteStream, Destination, Dial, Dialed, Dialing};
pub use warmline_core::key::Transport;

use self::children::Children;
use self::facts::SharedFacts;
use self::hidden::Hidden;
use self::legacy::LegacyHttp;
use self::letterhead::Letterhead;
use self::notices::Hearing;
use self::session::Driver;
use self::verdicts::Verdicts;
use self::way::Ways;
pub(crate) use self::way::place as shown_url;
use crate::clock;

/// A trouble without what stood in these headers, which some servers repeat.
pub(crate) fn without_headers(headers: &[(HeaderName, HeaderValue)], trouble: Trouble) -> Trouble {
    match headers {
        [] => trouble,
        headers => Hidden::default().and_headers(headers).struck(trouble),
    }
}

fn hearing(server: &Server) -> Hearing {
    Hearing::new(server.on_notice.clone())
}

/// Opens sessions to servers. Cheap to clone; all clones share their connections.
#[derive(Clone, Debug, Default)]
pub struct Upstream {
    pub(crate) ways: Arc<Ways>,
    facts: Arc<SharedFacts>,
    verdicts: Arc<Verdicts>,
    pub(crate) children: Arc<Children>,
}

impl Upstream {
    /// Nothing is read or connected until a session is opened.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens a session to a server, finding out its era unless the server's settings say it.
    ///
    /// # Errors
    /// With what went wrong, where, and what to do. Nothing of a caller was sent.
    ///
    /// # Cancel safety
    /// Dropping the future leaves no process behind. A server whose `initialize` was on its way
    /// may hold a session that nobody knows.
    pub async fn open(&self, server: &Server, declared: &Declared) -> Result<Session, Trouble> {
        let opened = detect::open(self, server, declared).await;
        opened.map_err(|trouble| Hidden::of_server(server).struck(trouble))
    }

    /// Meets a server for the first time: finds out what it speaks and opens a session on the leg
    /// to use.
    ///
    /// Where the era is said, only that leg is tried. Inside a run a server that speaks both eras
    /// is met on both, once, and the leg that keeps state is taken; what is not used is ended.
    ///
    /// # Errors
    /// As [`Upstream::open`].
    ///
    /// # Cancel safety
    /// As [`Upstream::open`].
    pub async fn first_contact(
        &self,
        server: &Server,
        declared: &Declared,
        legs: Legs,
    ) -> Result<Contact, Trouble> {
        let met = Box::pin(contact::meet(self, server, declared, legs)).await;
        met.map_err(|trouble| Hidden::of_server(server).struck(trouble))
    }

    /// Looks whether a server behind a URL takes connections, without a request: a connection is
    /// made, or one that rests is found alive. A process is always reachable.
    ///
    /// # Errors
    /// With what kept us from it.
    pub async fn reachable(&self, server: &Server, within: Duration) -> Result<(), Trouble> {
        let Reach::Http(reach) = &server.reach else {
            return Ok(());
        };
        let way = self.ways.to(server, reach)?;
        way.endpoint.reach(clock::after(within)).await
    }

    /// Asks a server behind a URL something without effects, outside any session: whether it
    /// answers at all. A process is not asked.
    ///
    /// # Errors
    /// With what kept us from an answer.
    pub async fn answers(&self, server: &Server, within: Duration) -> Result<(), Trouble> {
        let Reach::Http(reach) = &server.reach else {
            return Ok(());
        };
        let asked = probe::ask(self.letterhead(server, reach)?, within).await;
        asked.map_err(|trouble| Hidden::of_server(server).struck(trouble))
    }

    /// Takes up a session that was opened before, perhaps by another process. Nothing is sent: the
    /// first call shows whether the server still knows it.
    ///
    /// Request ids begin anew at a random place, so none of the earlier life is used again.
    ///
    /// # Errors
    /// Where what was kept does not fit the server: only sessions over Streamable HTTP can be
    /// taken up.
    pub fn resume(
        &self,
        server: &Server,
        declared: &Declared,
        kept: &Kept,
    ) -> Result<Session, Trouble> {
        let Reach::Http(reach) = &server.reach else {
            return Err(session::not_kept(&server.name, "it is a process"));
        };
        let head = self.letterhead(server, reach)?;
        let driver = LegacyHttp::resumed(head, declared, kept, hearing(server))?;
        let facts = self.facts.share(Arc::clone(&kept.facts));
        Ok(Session::new(Driver::LegacyHttp(driver), facts, None))
    }

    /// What is remembered of a server: the legs it was seen to speak on. After a
    /// [survey](Self::survey) of a dual-era server these are both.
    pub fn verdict(&self, server: &Server, declared: &Declared) -> Option<Verdict> {
        self.verdicts.recall(server, declared)
    }

    /// Tries both legs of a server, one after the other, and ends what it opened.
    pub async fn survey(&self, server: &Server, declared: &Declared) -> Survey {
        survey::survey(self, server, declared).await
    }

    /// What a session with a server behind a URL begins everything with.
    fn letterhead(&self, server: &Server, reach: &HttpReach) -> Result<Letterhead, Trouble> {
        let way = self.ways.to(server, reach)?;
        Ok(Letterhead::new(way, server.credential.clone()))
    }
}
