//! W3C trace context. A malformed `traceparent` is left out, and none is made up in its place.

/// The id of the trace that a `traceparent` names; none where it is malformed.
///
/// ```
/// use warmline_core::protocol::trace::trace_id;
///
/// let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
/// assert_eq!(trace_id(parent), Some("0af7651916cd43dd8448eb211c80319c"));
/// assert_eq!(trace_id("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"), None);
/// ```
pub fn trace_id(parent: &str) -> Option<&str> {
    let mut parts = parent.splitn(5, '-');
    let (version, trace) = (parts.next()?, parts.next()?);
    let (span, flags, more) = (parts.next()?, parts.next()?, parts.next());
    let is_known = version == "00";
    let is_right = is_hex(version, 2)
        && version != "ff"
        && is_nonzero_hex(trace, 32)
        && is_nonzero_hex(span, 16)
        && is_hex(flags, 2)
        // Later versions may say more behind it; this one may not.
        && (!is_known || more.is_none());
    is_right.then_some(trace)
}

/// Lower-case hexadecimal digits, that many.
fn is_hex(text: &str, digits: usize) -> bool {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    text.len() == digits && text.bytes().all(is_digit)
}

fn is_nonzero_hex(text: &str, digits: usize) -> bool {
    is_hex(text, digits) && text.bytes().any(|byte| byte != b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
    const SPAN: &str = "b7ad6b7169203331";

    #[test]
    fn what_the_format_allows_names_a_trace_and_nothing_else_does() {
        let zero = "0".repeat(32);
        #[rustfmt::skip]
        let cases = [
            (format!("00-{TRACE}-{SPAN}-01"), true),
            (format!("00-{TRACE}-{SPAN}-00"), true),
            (format!("01-{TRACE}-{SPAN}-01-more"), true),
            (format!("cc-{TRACE}-{SPAN}-01-more-and-more"), true),
            (format!("00-{TRACE}-{SPAN}-01-more"), false),
            (format!("00-{TRACE}-{SPAN}-01-"), false),
            (format!("ff-{TRACE}-{SPAN}-01"), false),
            (format!("0-{TRACE}-{SPAN}-01"), false),
            (format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), false),
            (format!("00-{zero}-{SPAN}-01"), false),
            (format!("00-{TRACE}-0000000000000000-01"), false),
            (format!("00-{TRACE}-{SPAN}"), false),
            (format!("00-{TRACE}-{SPAN}-1"), false),
            (format!("00-{TRACE}-{SPAN}-0x"), false),
            (format!(" 00-{TRACE}-{SPAN}-01"), false),
            (format!("00-{TRACE}x-{SPAN}-01"), false),
            (String::new(), false),
            ("-".repeat(55), false),
            ("ä".repeat(30), false),
        ];
        for (parent, is_one) in cases {
            assert_eq!(trace_id(&parent), is_one.then_some(TRACE), "{parent}");
        }
    }
}
