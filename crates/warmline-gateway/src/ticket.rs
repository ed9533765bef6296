//! Tickets: the session id that a legacy client gets from us.
//!
//! Asked by: the legacy face, at `initialize` and at every request that carries an id.
//!
//! A ticket is sealed and holds all there is to know of a client session, so that an idle client
//! costs no memory and a restart loses none. It is no proof of who somebody is: it is checked
//! against the identity and the route of the request that carries it, and whatever does not fit is
//! answered like an id that never was.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use warmline::Vault;
use warmline::core::era::Version;
use warmline::core::exchange::Trouble;
use warmline::core::key::Digest;
use warmline::seal::Purpose;

use crate::declared::Answers;

/// The form of what is sealed; another one is not read.
const FORM: u8 = 2;
/// Form, identity, route, name of the client session, version, answers, time, run.
const LENGTH: usize = 1 + 16 + 16 + 16 + 1 + 2 + 8 + RUN_PLACE;
/// What is left for the run below the longest text: one byte that says what stands there.
const RUN_PLACE: usize = 1 + LONGEST_NAME;
/// A longer name than this has no room in a ticket.
const LONGEST_NAME: usize = 55;
/// No ticket of ours is longer; nothing longer is even looked at.
const MAX_TEXT: usize = 200;

/// What a legacy client session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Who opened it.
    pub(crate) identity: Digest,
    /// Where: the server, and the run if the path named one.
    pub(crate) route: Digest,
    /// The run that it belongs to.
    pub(crate) run: RunOf,
    /// Its own name, which nobody can guess.
    pub(crate) name: Digest,
    /// The version of the protocol that was agreed on.
    pub(crate) version: Version,
    /// What the client can answer.
    pub(crate) answers: Answers,
    /// When it was given, in seconds of the Unix epoch.
    pub(crate) given_at: u64,
}

/// The run that a client session belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunOf {
    /// It is a run of its own.
    Itself,
    /// The one that was named when it was given.
    Named(ShortName),
    /// The same, whose name is too long: it can be known again, but not be told.
    Long(Digest),
}

/// The name of a run that a ticket has room for. What is left is zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ShortName([u8; LONGEST_NAME]);

impl ShortName {
    fn of(name: &str) -> Option<Self> {
        let mut place = [0; LONGEST_NAME];
        place
            .get_mut(..name.len())?
            .copy_from_slice(name.as_bytes());
        Some(Self(place))
    }

    pub(crate) fn text(&self) -> &str {
        let text = std::str::from_utf8(&self.0).unwrap_or_default();
        text.trim_end_matches('\0')
    }
}

impl RunOf {
    /// The run that was named, if one was; `digest` is that of a name.
    pub(crate) fn named(name: Option<&str>, digest: impl FnOnce(&str) -> Digest) -> Self {
        let Some(name) = name else {
            return Self::Itself;
        };
        ShortName::of(name).map_or_else(|| Self::Long(digest(name)), Self::Named)
    }

    /// Whether it is the run of this name.
    pub(crate) fn is(&self, name: &str, digest: impl FnOnce(&str) -> Digest) -> bool {
        match self {
            Self::Itself => false,
            Self::Named(short) => short.text() == name,
            Self::Long(known) => *known == digest(name),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let (first, rest) = match self {
            Self::Itself => (0, &[][..]),
            Self::Named(short) => (1, &short.0[..]),
            Self::Long(digest) => (2, &digest.bytes()[..]),
        };
        let end = out.len() + RUN_PLACE;
        out.push(first);
        out.extend_from_slice(rest);
        out.resize(end, 0);
    }

    fn read(rest: &mut Reader<'_>) -> Option<Self> {
        match rest.take::<1>()? {
            [0] => Some(Self::Itself),
            [1] => Some(Self::Named(ShortName(rest.take()?))),
            [2] => Some(Self::Long(Digest::new(rest.take()?))),
            _ => None,
        }
    }
}

impl Ticket {
    /// The text that the client carries.
    pub(crate) fn seal(&self, vault: &Vault) -> Result<String, Trouble> {
        let mut plain = Vec::with_capacity(LENGTH);
        plain.push(FORM);
        for digest in [&self.identity, &self.route, &self.name] {
            plain.extend_from_slice(digest.bytes());
        }
        plain.push(number_of(self.version));
        plain.extend_from_slice(&self.answers.bits().to_le_bytes());
        plain.extend_from_slice(&self.given_at.to_le_bytes());
        self.run.write(&mut plain);
        let sealed = vault.seal(Purpose::Ticket, b"", &plain)?;
        Ok(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// What a text says, if it is a ticket of ours.
    pub(crate) fn open(vault: &Vault, text: &[u8]) -> Option<Self> {
        if text.len() > MAX_TEXT {
            return None;
        }
        let sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let plain = vault.unseal(Purpose::Ticket, b"", &sealed).ok()?;
        let mut rest = Reader(plain.get(..).filter(|plain| plain.len() == LENGTH)?);
        if rest.take::<1>()? != [FORM] {
            return None;
        }
        Some(Self {
            identity: Digest::new(rest.take()?),
            route: Digest::new(rest.take()?),
            name: Digest::new(rest.take()?),
            version: version_of(rest.take::<1>()?)?,
            answers: Answers::of_bits(u16::from_le_bytes(rest.take()?)),
            given_at: u64::from_le_bytes(rest.take()?),
            run: RunOf::read(&mut rest)?,
        })
    }

    /// The name of the run that this client session is, where no other was named.
    pub(crate) fn run_name(&self) -> String {
        format!("client_{}", self.name.hex())
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }
}

/// Places in the list of versions, which only grows.
fn number_of(version: Version) -> u8 {
    let place = Version::ALL.iter().position(|known| *known == version);
    place
        .and_then(|place| u8::try_from(place).ok())
        .unwrap_or(u8::MAX)
}

fn version_of([number]: [u8; 1]) -> Option<Version> {
    Version::ALL.get(usize::from(number)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(name: &str) -> Digest {
        Digest::new([u8::try_from(name.len()).unwrap(); 16])
    }

    fn ticket(version: Version) -> Ticket {
        Ticket {
            identity: Digest::new([1; 16]),
            route: Digest::new([2; 16]),
            run: RunOf::named(Some("r1"), digest),
            name: Digest::new([3; 16]),
            version,
            answers: Answers::of_bits(5),
            given_at: 1_790_000_000,
        }
    }

    #[test]
    fn a_ticket_says_what_was_sealed_and_stays_short() {
        let vault = Vault::ephemeral().unwrap();
        for version in Version::ALL {
            let text = ticket(version).seal(&vault).unwrap();
            assert!(text.len() < 200, "{}", text.len());
            assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
            assert_eq!(Ticket::open(&vault, text.as_bytes()), Some(ticket(version)));
        }
    }

    /// A ticket has one size, whatever run it belongs to, and knows the run again.
    #[test]
    fn a_ticket_knows_its_run_again() {
        let vault = Vault::ephemeral().unwrap();
        let (longest, longer) = ("x".repeat(LONGEST_NAME), "x".repeat(LONGEST_NAME + 1));
        let rows = [
            (None, None),
            (Some("r"), Some("r")),
            (Some(&*longest), Some(&*longest)),
            (Some(&*longer), None),
        ];
        let mut sizes = Vec::new();
        for (named, told) in rows {
            let run = RunOf::named(named, digest);
            let given = Ticket {
                run,
                ..ticket(Version::NEWEST_LEGACY)
            };
            let text = given.seal(&vault).unwrap();
            sizes.push(text.len());
            let opened = Ticket::open(&vault, text.as_bytes()).unwrap();
            assert_eq!(opened, given);
            let short = match &opened.run {
                RunOf::Named(short) => Some(short.text()),
                RunOf::Itself | RunOf::Long(_) => None,
            };
            assert_eq!(short, told);
            assert_eq!(opened.run.is("r", digest), named == Some("r"));
            assert_eq!(
                named.map(|name| opened.run.is(name, digest)),
                named.map(|_| true)
            );
        }
        sizes.dedup();
        assert_eq!(sizes.len(), 1);
    }

    #[test]
    fn whatever_is_no_ticket_of_ours_is_none() {
        let (vault, other) = (Vault::ephemeral().unwrap(), Vault::ephemeral().unwrap());
        let text = ticket(Version::NEWEST_LEGACY).seal(&vault).unwrap();
        assert_eq!(Ticket::open(&other, text.as_bytes()), None);
        for place in 0..text.len() {
            let mut forged = text.clone().into_bytes();
            forged[place] = if forged[place] == b'A' { b'B' } else { b'A' };
            assert_eq!(Ticket::open(&vault, &forged), None, "{place}");
            assert_eq!(Ticket::open(&vault, &text.as_bytes()[..place]), None);
        }
        let record = vault.seal(Purpose::Record, b"", &[1; LENGTH]).unwrap();
        let record = URL_SAFE_NO_PAD.encode(record);
        assert_eq!(Ticket::open(&vault, record.as_bytes()), None);
        assert_eq!(Ticket::open(&vault, &[b'A'; 4096]), None);
    }
}
