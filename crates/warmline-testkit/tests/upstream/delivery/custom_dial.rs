//! Connections that a program makes in its own way: a resolver, a proxy, TLS of its own.

use crate::prelude::*;

use std::io;

use warmline_platform::net::{Destination, Dial, Dialed, Dialing};

use super::fixture::Expected::Result;
use super::tls::Authority;

/// Leads every name to one address, and writes down what it was asked for.
#[derive(Debug)]
struct Resolver {
    label: &'static str,
    leads_to: Option<SocketAddr>,
    dialed: AtomicUsize,
    wanted: Mutex<Vec<(String, u16, bool)>>,
}

impl Resolver {
    fn new(label: &'static str, leads_to: Option<SocketAddr>) -> Arc<Self> {
        Arc::new(Self {
            label,
            leads_to,
            dialed: AtomicUsize::new(0),
            wanted: Mutex::default(),
        })
    }

    fn dialed(&self) -> usize {
        self.dialed.load(Ordering::SeqCst)
    }
}

impl Dial for Resolver {
    fn label(&self) -> &str {
        self.label
    }

    fn dial<'a>(&'a self, to: Destination<'a>) -> Dialing<'a> {
        Box::pin(async move {
            self.dialed.fetch_add(1, Ordering::SeqCst);
            let wanted = (to.host.to_owned(), to.port, to.tls);
            self.wanted.lock().unwrap().push(wanted);
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            let stream = TcpStream::connect(self.leads_to.ok_or_else(refused)?).await?;
            Ok(Dialed::Plain(Box::new(stream)))
        })
    }
}

/// A setting whose server is known by a name that no resolver of ours finds.
fn named(server: LedgerServer, url: &str, era: Era) -> Setting {
    let mut setting = Setting::around(server, era);
    setting.through(url);
    setting
}

/// A112: the program's own connector is used, and its connections are kept like ours.
#[tokio::test]
async fn connections_are_made_in_the_way_of_the_program() {
    for era in [Era::Legacy, Era::Modern] {
        let personality = personality_of(era);
        let server = LedgerServer::start(personality).unwrap();
        let resolver = Resolver::new("lan", Some(server.address()));
        let mut setting = named(server, "http://ledger.invalid:8080/mcp", era);
        setting.known_as.dial = Some(Arc::clone(&resolver) as Arc<dyn Dial>);
        for number in 0..3 {
            let outcome = setting.pay(&format!("dialed {number}"), &()).await;
            outcome.ends(Result);
        }
        assert_eq!(resolver.dialed(), 1, "one connection was kept");
        let wanted = resolver.wanted.lock().unwrap().clone();
        assert_eq!(wanted, [("ledger.invalid".to_owned(), 8080, false)]);
        setting.finish().await;
    }
}

/// A112: it is part of the key.
#[tokio::test]
async fn connections_and_verdicts_of_two_connectors_are_kept_apart() {
    let server = LedgerServer::start(Personality::modern()).unwrap();
    let address = Some(server.address());
    let mut setting = named(server, "http://ledger.invalid/mcp", Era::Modern);
    setting.known_as.era = None;
    // Resting connections end soon, so that the census need not wait for them.
    setting.known_as.timeouts.connection_idle = Duration::from_millis(20);
    let resolvers = [Resolver::new("one", address), Resolver::new("two", address)];
    for resolver in &resolvers {
        setting.known_as.dial = Some(Arc::clone(resolver) as Arc<dyn Dial>);
        drop(setting.open().await);
        assert_eq!(resolver.dialed(), 1);
    }
    assert_eq!(setting.server.counts().connections, 2);
    let asked = setting.server.ledger().messages_received("server/discover");
    assert_eq!(asked, 2, "each asked for itself");
    setting.finish().await;
}

#[tokio::test]
async fn tls_is_put_on_what_the_program_made() {
    let authority = Authority::named("ours");
    let tls = authority.server("ledger.invalid", 2090);
    let server = LedgerServer::start_tls(Personality::legacy(), tls).unwrap();
    let resolver = Resolver::new("lan", Some(server.address()));
    let mut setting = named(server, "https://ledger.invalid/mcp", Era::Legacy);
    authority.is_trusted_by(&mut setting);
    setting.known_as.dial = Some(Arc::clone(&resolver) as Arc<dyn Dial>);
    let outcome = setting.pay("safe", &()).await;
    outcome.ends(Result);
    assert!(resolver.wanted.lock().unwrap()[0].2, "it was told of TLS");
    setting.finish().await;
}

#[tokio::test]
async fn a_connection_that_cannot_be_made_leaves_the_request_unsent() {
    let server = LedgerServer::start(Personality::legacy()).unwrap();
    let mut setting = named(server, "http://ledger.invalid/mcp", Era::Legacy);
    setting.known_as.dial = Some(Resolver::new("nowhere", None));
    let trouble = setting.try_open().await.unwrap_err();
    assert_eq!(trouble.reason, Reason::ConnectRefused, "{trouble:?}");
    setting.finish().await;
}
