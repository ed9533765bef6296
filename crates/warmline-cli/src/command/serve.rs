//! `warmline serve`: a gateway in front of servers, from the first line to the last.

use std::net::SocketAddr;

use warmline::core::code::Code;
use warmline::settings::AuthWord;
use warmline_gateway::reload::{Fixed, Watch};
use warmline_gateway::{Gateway, Options, settings};

use crate::args;
use crate::gate::{Kept, Source};
use crate::interrupt::{Signals, Told};
use crate::problem::{Outcome, Problem};
use crate::report::Report;
use crate::target::state_folder;

mod announcing;
mod descriptors;
mod stopping;

use announcing::Announced;

/// Serves until somebody stops it.
pub(super) async fn run(typed: &args::Serve, report: &Report) -> Outcome<u8> {
    let mut signals = Signals::hear();
    let source = Source::of(&typed.served)?.listening(typed.listen, typed.auth);
    let (wanted, cautions) = source.read()?;
    for caution in cautions {
        report.caution(&caution);
    }
    descriptors::raise();
    let state = state_folder(typed.served.state_dir.as_deref())?;
    let (fixed, drain) = (Fixed::of(&wanted), wanted.engine.ceilings);
    let kept = Kept::open(&state, wanted)?;
    let gateway = kept.listen().await?;
    let announced = Announced {
        scheme: kept.settings.scheme(),
        address: gateway.address(),
        servers: gateway.warm().servers(),
        auth: kept.settings.auth,
        token: kept.tokens.local_file(),
    };
    announced.tell(report);
    kept.follow(&gateway, &source, &fixed, &mut signals).await;
    Ok(stopping::stop(gateway, drain, &mut signals).await)
}

impl Kept {
    async fn listen(&self) -> Outcome<Gateway> {
        let options = Options::of(&self.settings, &self.tokens, self.warm.vault())?;
        let address = options.listen;
        let started = Gateway::start(self.warm.clone(), options).await;
        started.map_err(|error| cannot_listen(address, &error.into()))
    }

    /// Goes by what files and signals say, until one of them says to stop.
    async fn follow(
        &self,
        gateway: &Gateway,
        source: &Source,
        fixed: &Fixed,
        signals: &mut Signals,
    ) {
        let mut files = Watch::over(match self.settings.watch {
            true => source.places(),
            false => Vec::new(),
        });
        let mut tokens = Watch::over(vec![self.state.join("tokens"), self.tokens.local_file()]);
        loop {
            tokio::select! {
                told = signals.next() => match told {
                    Told::Stop => return,
                    Told::Reload => reload(gateway, source, fixed),
                },
                () = files.changed() => reload(gateway, source, fixed),
                () = tokens.changed() => self.ask_anew(gateway),
            }
        }
    }

    /// Tokens were made or revoked: those that are there count from now on.
    fn ask_anew(&self, gateway: &Gateway) {
        if self.settings.auth == AuthWord::None {
            return;
        }
        match settings::auth(&self.settings, &self.tokens, self.warm.vault()) {
            Ok(auth) => {
                gateway.let_in_by(auth);
                tracing::info!("tokens read again");
            },
            // The last one was revoked: nobody is let in until there is another.
            Err(error) => {
                gateway.let_in_by(warmline_gateway::Auth::tokens(Vec::new()));
                tracing::warn!(what = %error, "no token counts any more");
            },
        }
    }
}

/// Reads the configuration again: whole or not at all.
fn reload(gateway: &Gateway, source: &Source, fixed: &Fixed) {
    let read = source.read().and_then(|(wanted, _)| {
        let reloaded = gateway.reload(wanted, fixed);
        reloaded.map_err(|error| Problem::of_trouble(error.trouble(), error.delivery()))
    });
    if let Err(problem) = read {
        let parts = problem.parts();
        tracing::error!(
            code = %parts.code,
            what = parts.what,
            place = parts.place,
            why = parts.why,
            hint = parts.hint,
            "configuration not read again, what runs goes on"
        );
    }
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Problem {
    let what = format!("`{address}` cannot be listened on");
    Problem::new(Code::ConfigBadValue, what)
        .because(error.to_string())
        .hint("another program may listen there; --listen 127.0.0.1:0 takes a free port")
}
