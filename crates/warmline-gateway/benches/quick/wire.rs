//! Just enough of HTTP/1.1 for both ends: a head, a length, a body.

/// A message that came whole.
pub(crate) struct Whole {
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Whole {
    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1);
        lines
            .filter_map(|line| line.split_once(':'))
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }
}

/// Takes one message off the front of what was read, if it is there whole.
pub(crate) fn take(input: &mut Vec<u8>) -> Option<Whole> {
    let end = memchr::memmem::find(input, b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&input[..end]).into_owned();
    let mut whole = Whole {
        head,
        body: Vec::new(),
    };
    let length = whole
        .header("content-length")
        .map_or(0, |length| length.parse().unwrap());
    if input.len() < end + length {
        return None;
    }
    whole.body = input[end..end + length].to_vec();
    input.drain(..end + length);
    Some(whole)
}

/// The raw id of a message, if it has one.
pub(crate) fn id_of(body: &str) -> Option<&str> {
    let after = body.split_once("\"id\":")?.1;
    let end = after.find([',', '}'])?;
    after.get(..end)
}
