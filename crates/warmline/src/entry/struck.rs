//! Secrets are struck out of what a server says.

use http::{HeaderName, HeaderValue};
use warmline_core::exchange::Trouble;

use super::Entry;
use crate::engine::Who;
use crate::seal::Vault;
use crate::upstream::Reach;

impl Entry {
    /// The same trouble without what was sent to the server in headers: some servers repeat it in
    /// their errors.
    pub(crate) fn struck_out(
        &self,
        (who, vault): (&Who, &Vault),
        of_the_call: &[(HeaderName, HeaderValue)],
        mut trouble: Trouble,
    ) -> Trouble {
        let credential = self.credential(who, vault);
        let shown = credential.and_then(|credential| credential.header());
        let found = self.known_place();
        let declared = match found.as_deref().map(|found| &found.reach) {
            Some(Reach::Http(reach)) => reach.headers.as_slice(),
            Some(Reach::Stdio(_)) | None => &[],
        };
        let sent = shown.iter().chain(declared).chain(of_the_call);
        for (_, value) in sent {
            // The token itself, whatever form it is shown in. Short values are no secrets, and
            // striking them out would make words unreadable.
            let value = value.to_str().unwrap_or_default();
            let Some(secret) = value.rsplit(' ').next().filter(|text| text.len() >= 8) else {
                continue;
            };
            for text in std::iter::once(&mut trouble.what).chain(trouble.why.as_mut()) {
                if text.contains(secret) {
                    *text = text.replace(secret, "(struck out)");
                }
            }
        }
        trouble
    }
}
