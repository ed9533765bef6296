//! Names: tool names that model providers accept, and patterns of names.
//!
//! Asked by: tool lists, and the rules on which tools may be called.

/// Whether a name fits a pattern, in which `*` stands for any characters.
pub fn is_like(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    // Where to go on if the last star has to take one character more.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            },
            Some(byte) if Some(byte) == name.get(n) => {
                p += 1;
                n += 1;
            },
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    n = taken + 1;
                },
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|byte| *byte == b'*')
}

/// Whether a name fits one of several patterns.
pub fn is_any(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| is_like(pattern, name))
}
