//! Tickets: the session id that a legacy client gets from us.
//!
//! Asked by: the legacy face, at `initialize` and at every request that carries an id.
//!
//! A ticket is sealed and holds all there is to know of a client session, so that an idle client
//! costs no memory and a restart loses none. It is no proof of who somebody is: it is checked
//! against the identity and the route of the request that carries it, and whatever does not fit is
//! answered like an id that never was. Why it holds the name of its run and no digest of it: ADR 0014.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use warmline::Vault;
use warmline::core::era::Version;
use warmline::core::exchange::Trouble;
use warmline::core::key::Digest;
use warmline::seal::Purpose;

use crate::declared::Answers;

/// The form of what is sealed; another one is not read.
const FORM: u8 = 3;
/// Form, identity, route, name of the client session, version, answers, time, and the run: how long
/// its name is, and room for the longest.
const LENGTH: usize = 1 + 16 + 16 + 16 + 1 + 2 + 8 + 1 + LONGEST_NAME;
/// No name of a run is longer.
const LONGEST_NAME: usize = 128;
/// No ticket of ours is longer; nothing longer is even looked at.
const MAX_TEXT: usize = 300;

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
    Named(RunName),
}

/// The name of a run, with zeros behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunName {
    length: u8,
    bytes: [u8; LONGEST_NAME],
}

impl RunName {
    fn of(name: &[u8]) -> Option<Self> {
        let mut bytes = [0; LONGEST_NAME];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        let length = u8::try_from(name.len()).ok()?;
        Some(Self { length, bytes })
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.length.into()).unwrap_or_default()
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(self.bytes()).unwrap_or_default()
    }
}

impl RunOf {
    /// The run that was named, if one was.
    pub(crate) fn named(name: Option<&str>) -> Self {
        // A name that is longer than any was refused before.
        let name = name.and_then(|name| RunName::of(name.as_bytes()));
        name.map_or(Self::Itself, Self::Named)
    }

    /// Its name, if one was named.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Itself => None,
            Self::Named(name) => Some(name.text()),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let (length, bytes) = match self {
            Self::Itself => (0, &[0; LONGEST_NAME]),
            Self::Named(name) => (name.length, &name.bytes),
        };
        out.push(length);
        out.extend_from_slice(bytes);
    }

    fn read(rest: &mut Reader<'_>) -> Option<Self> {
        let [length] = rest.take()?;
        let bytes = rest.take()?;
        Some(match length {
            0 => Self::Itself,
            length => Self::Named(RunName { length, bytes }),
        })
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

    fn ticket(version: Version) -> Ticket {
        Ticket {
            identity: Digest::new([1; 16]),
            route: Digest::new([2; 16]),
            run: RunOf::named(Some("r1")),
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
            assert!(text.len() <= MAX_TEXT, "{}", text.len());
            assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
            assert_eq!(Ticket::open(&vault, text.as_bytes()), Some(ticket(version)));
        }
    }

    /// A ticket knows its run again, and has one size whatever run it belongs to.
    #[test]
    fn a_ticket_knows_its_run_again() {
        let vault = Vault::ephemeral().unwrap();
        let mut sizes = Vec::new();
        for length in [0, 1, LONGEST_NAME] {
            let name = "x".repeat(length);
            let named = Some(&*name).filter(|name| !name.is_empty());
            let given = Ticket {
                run: RunOf::named(named),
                ..ticket(Version::NEWEST_LEGACY)
            };
            let text = given.seal(&vault).unwrap();
            let opened = Ticket::open(&vault, text.as_bytes()).unwrap();
            assert_eq!((opened, opened.run.name()), (given, named));
            sizes.push(text.len());
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
