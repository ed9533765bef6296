//! The numbers of JSON-RPC errors that a gateway gives of its own, for whoever sees one in a client.

use warmline::core::code::rpc_number;
use warmline::core::delivery::Delivery;

use crate::report::{Fields, Report, style};

/// A number, and what it means.
pub(super) struct Number {
    number: i64,
    meaning: &'static str,
    try_this: &'static str,
}

/// What to look at where a call failed: the word says more than the number.
const SEE_WORD: &str = "see the word in `error.data.warmline.code`: `warmline explain WORD`";
/// What to look at where a message made no sense.
const SEE_LOG: &str =
    "the client sent something else than the protocol has; the log of the gateway names it";

const NUMBERS: [(i64, &str, &str); 8] = [
    (-32700, "the body is no JSON", SEE_LOG),
    (
        -32600,
        "it is JSON, and no message that may stand there, or the caller is not let in",
        SEE_LOG,
    ),
    (-32601, "no such method is spoken there", SEE_LOG),
    (-32602, "the parameters are wrong", SEE_LOG),
    (
        -32603,
        "something broke in the gateway, or in the server that gave this number",
        "look at the log of the gateway, and report it if it is ours",
    ),
    (
        -32002,
        "no server has this resource",
        "list resources anew: it may be gone, or its server left out",
    ),
    (
        -32020,
        "a header is missing, or says something else than the body",
        SEE_LOG,
    ),
    (
        -32022,
        "the version of the protocol is not spoken there",
        "the error itself lists those that are; a client that knows none of them is too old or too new",
    ),
];

/// What stands for every number that the protocol leaves to servers.
const OF_A_SERVER: (i64, &str, &str) = (
    -32000,
    "a server gave it, for a reason of its own",
    "read its message; with a text that speaks of a session it may mean that the session is gone",
);

impl Number {
    /// The number that somebody typed, if it is one that we give or pass on.
    pub(super) fn find(typed: &str) -> Option<Self> {
        let number: i64 = typed.trim().parse().ok()?;
        let of_delivery = [Delivery::Unsent, Delivery::Refused, Delivery::Unknown]
            .into_iter()
            .find(|delivery| rpc_number(*delivery) == Some(number));
        if let Some(delivery) = of_delivery {
            return Some(Self {
                number,
                meaning: match delivery {
                    Delivery::Unsent => "the call failed before it left us: it was not executed",
                    Delivery::Refused => "the server refused the call: it was not executed",
                    Delivery::Unknown | Delivery::Answered => {
                        "no answer came: the call may have been executed"
                    },
                },
                try_this: SEE_WORD,
            });
        }
        let known = NUMBERS.iter().find(|(known, ..)| *known == number);
        let known = known.or((-32_099..=-32_000)
            .contains(&number)
            .then_some(&OF_A_SERVER))?;
        Some(Self {
            number,
            meaning: known.1,
            try_this: known.2,
        })
    }

    pub(super) fn page(&self, report: &Report) {
        let Self {
            number,
            meaning,
            try_this,
        } = self;
        if report.is_json() {
            let fields = Fields::new()
                .put("number", number)
                .put("meaning", meaning)
                .put("try", [try_this]);
            return report.object("number", &fields);
        }
        report.data(&style::bold(&format!("{number}, in a JSON-RPC error")));
        report.data(&format!("  {meaning}\n\n  what to try:\n  - {try_this}"));
    }
}
