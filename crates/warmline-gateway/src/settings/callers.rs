//! Who is let in otherwise than by our own tokens, and what they may do: from settings to what the
//! door goes by.

use http::HeaderName;
use http::Uri;
use http::header::{AUTHORIZATION, COOKIE, HOST};
use http::uri::Scheme;
use warmline::config::{Access, AccessRule, Caller, ConfigError, nearest};
use warmline::settings::{AuthWord, GatewaySettings, JwtSettings};

use super::{Accesses, bad, shown};
use crate::{
    Algorithm, Jwt, KeySource, Network, Resource, Rule, Rules, ServerRules, TrustedProxies, Way,
    Whose,
};

/// The ways in beside our own tokens.
pub(super) fn others(settings: &GatewaySettings) -> Result<Vec<Way>, ConfigError> {
    let proxies = proxies(settings)?.map(Way::Proxies);
    let jwt = jwt(settings)?.map(Way::Jwt);
    let wrong = |key: &str, what: &str, hint: &str| Err(bad(settings, key, what, hint));
    match settings.auth {
        AuthWord::Jwt if jwt.is_none() => wrong(
            "gateway.auth",
            "`gateway.auth` is `jwt`, and nobody's signed tokens count",
            "say in `[gateway.jwt]` whose do: `issuer`, `audiences`, and `keys_url` or `keys_file`",
        ),
        AuthWord::Proxy if proxies.is_none() => wrong(
            "gateway.auth",
            "`gateway.auth` is `proxy`, and no proxy is trusted",
            "say where they are (`trusted_proxies`) and how they name the caller (`proxy_header`)",
        ),
        AuthWord::None if jwt.is_some() || proxies.is_some() => wrong(
            "gateway.auth",
            "`gateway.auth` is `none`, and other settings say whom to let in",
            "decide `jwt` or `proxy`, which asks for them alone, or `tokens`",
        ),
        AuthWord::Local | AuthWord::Tokens | AuthWord::Jwt | AuthWord::Proxy | AuthWord::None => {
            Ok(proxies.into_iter().chain(jwt).collect())
        },
    }
}

fn proxies(settings: &GatewaySettings) -> Result<Option<TrustedProxies>, ConfigError> {
    const ADDRESSES: &str = "gateway.trusted_proxies";
    const HEADER: &str = "gateway.proxy_header";
    let wrong = |key, what: &str, hint| Err(bad(settings, key, what, hint));
    let named = match (&settings.proxy_header, settings.trusted_proxies.as_slice()) {
        (None, []) => return Ok(None),
        (Some(named), [_, ..]) => named,
        (Some(_), []) => {
            let what = format!("`{HEADER}` is decided, and no proxy is trusted");
            return wrong(
                HEADER,
                &what,
                "name them: `trusted_proxies = [\"10.0.0.7\"]`",
            );
        },
        (None, _) => {
            let what = format!("proxies are trusted, and `{HEADER}` does not say how they speak");
            let hint = "name the header that they set, and that they never pass on from a caller: \
                        `proxy_header = \"X-Forwarded-User\"`";
            return wrong(ADDRESSES, &what, hint);
        },
    };
    let header = named.parse::<HeaderName>().ok();
    let is_free = |header: &HeaderName| ![AUTHORIZATION, COOKIE, HOST].contains(header);
    let Some(header) = header.filter(is_free) else {
        let what = format!("`{}` cannot be the header of a proxy", shown(named));
        return wrong(HEADER, &what, "write a name such as `X-Forwarded-User`");
    };
    let networks = settings.trusted_proxies.iter().map(|text| {
        let network = Network::parse(text).filter(|network| !network.is_all());
        network.ok_or_else(|| {
            let what = format!("`{}` is no place of a proxy", shown(text));
            let hint = "write an address (`10.0.0.7`) or a network (`10.0.0.0/8`); to trust \
                        everybody is to ask nobody";
            bad(settings, ADDRESSES, &what, hint)
        })
    });
    Ok(Some(TrustedProxies {
        addresses: networks.collect::<Result<_, _>>()?,
        header,
    }))
}

fn jwt(settings: &GatewaySettings) -> Result<Option<Jwt>, ConfigError> {
    let said = &settings.jwt;
    let wrong = |key, what: &str, hint| Err(bad(settings, key, what, hint));
    let Some(issuer) = &said.issuer else {
        return match decided_without_issuer(said) {
            Some(key) => {
                let what = format!("`{key}` is decided, and `gateway.jwt.issuer` is not");
                wrong(
                    key,
                    &what,
                    "name the issuer, exactly as its tokens do (`iss`)",
                )
            },
            None => Ok(None),
        };
    };
    if said.audiences.is_empty() {
        let what = "`gateway.jwt` does not say for whom tokens must be issued";
        let hint = "name us as the issuer does: `audiences = [\"https://mcp.example.com\"]`; a \
                    token for somebody else is not for us";
        return wrong("gateway.jwt.issuer", what, hint);
    }
    let keys = match (&said.keys_url, &said.keys_file) {
        (Some(url), None) => KeySource::Url(fetched(settings, url)?),
        (None, Some(file)) => KeySource::File(file.clone()),
        (url, _) => {
            let what = match url {
                Some(_) => "`gateway.jwt` says twice where the issuer's keys are",
                None => "`gateway.jwt` does not say where the issuer's keys are",
            };
            let hint = "write `keys_url = \"https://…\"` or `keys_file = \"path\"`";
            return wrong("gateway.jwt.issuer", what, hint);
        },
    };
    Ok(Some(Jwt {
        audiences: said.audiences.clone(),
        algorithms: algorithms(settings)?,
        leeway: said.leeway,
        identity_claim: said.identity.clone(),
        ..Jwt::new(issuer, "", keys)
    }))
}

fn decided_without_issuer(said: &JwtSettings) -> Option<&'static str> {
    let usual = JwtSettings::default();
    [
        ("gateway.jwt.audiences", said.audiences != usual.audiences),
        ("gateway.jwt.keys_url", said.keys_url.is_some()),
        ("gateway.jwt.keys_file", said.keys_file.is_some()),
        (
            "gateway.jwt.algorithms",
            said.algorithms != usual.algorithms,
        ),
        ("gateway.jwt.identity", said.identity != usual.identity),
    ]
    .into_iter()
    .find_map(|(key, is_decided)| is_decided.then_some(key))
}

/// A URL from which keys may be fetched: nobody between us and the issuer may change them.
fn fetched(settings: &GatewaySettings, url: &str) -> Result<String, ConfigError> {
    let uri = url.parse::<Uri>().ok();
    let is_good = uri.is_some_and(|uri| {
        let host = uri.host().map(|host| host.trim_matches(['[', ']']));
        let is_secure = uri.scheme() == Some(&Scheme::HTTPS);
        let is_plain = uri.scheme() == Some(&Scheme::HTTP);
        host.is_some_and(|host| is_secure || (is_plain && crate::hosts::is_local(host)))
    });
    if is_good {
        return Ok(url.to_owned());
    }
    let what = format!("keys cannot be fetched from `{}`", shown(url));
    let hint = "write an `https` URL; `http` is for this machine alone";
    Err(bad(settings, "gateway.jwt.keys_url", &what, hint))
}

fn algorithms(settings: &GatewaySettings) -> Result<Vec<Algorithm>, ConfigError> {
    const KEY: &str = "gateway.jwt.algorithms";
    let names = || Algorithm::ALL.iter().map(|(name, _)| *name);
    let said = &settings.jwt.algorithms;
    if said.is_empty() {
        let what = format!("`{KEY}` names none: no token could be signed");
        let hint = format!("some of {}", names().collect::<Vec<_>>().join(", "));
        return Err(bad(settings, KEY, &what, &hint));
    }
    let all = said.iter().map(|name| {
        Algorithm::parse(name).ok_or_else(|| {
            let what = format!("`{}` is no way to sign that counts here", shown(name));
            let hint = match nearest(name, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("some of {}", names().collect::<Vec<_>>().join(", ")),
            };
            bad(settings, KEY, &what, &hint)
        })
    });
    all.collect()
}

/// What clients are told of where they get tokens.
pub(super) fn resource(settings: &GatewaySettings) -> Result<Option<Resource>, ConfigError> {
    const URL: &str = "gateway.resource.url";
    const ISSUERS: &str = "gateway.resource.authorization_servers";
    let said = &settings.resource;
    let Some(url) = &said.url else {
        let key = match (
            said.authorization_servers.as_slice(),
            said.scopes.as_slice(),
        ) {
            ([], []) => return Ok(None),
            ([], _) => "gateway.resource.scopes",
            _ => ISSUERS,
        };
        let what = format!("`{key}` is decided, and `{URL}` is not");
        let hint = "write our own URL as clients know it: `url = \"https://mcp.example.com\"`";
        return Err(bad(settings, key, &what, hint));
    };
    if !is_base(url) {
        let what = format!("`{}` is not the beginning of our URLs", shown(url));
        let hint = "write scheme and host alone: `https://mcp.example.com`";
        return Err(bad(settings, URL, &what, hint));
    }
    let authorization_servers = match said.authorization_servers.as_slice() {
        [] => settings.jwt.issuer.iter().cloned().collect(),
        named => named.to_vec(),
    };
    if authorization_servers.is_empty() {
        let what = "`gateway.resource` does not say who gives out tokens";
        let hint = "write `authorization_servers = [\"https://login.example.com\"]`, or the issuer \
                    in `[gateway.jwt]`";
        return Err(bad(settings, URL, what, hint));
    }
    Ok(Some(Resource {
        url: url.clone(),
        authorization_servers,
        scopes: said.scopes.clone(),
    }))
}

/// Whether a URL has a scheme and a host, and nothing behind them.
fn is_base(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else {
        return false;
    };
    let is_http = [Some(&Scheme::HTTPS), Some(&Scheme::HTTP)].contains(&uri.scheme());
    is_http && uri.host().is_some() && uri.path() == "/" && uri.query().is_none()
}

/// Rules about callers. A claim needs somebody who signs it: a rule that asks for one where no
/// signed token counts could never be met.
pub(super) fn rules(settings: &GatewaySettings, accesses: &Accesses) -> Result<Rules, ConfigError> {
    let mut rules = Rules::none();
    for (server, access) in accesses {
        if access.asks_for_claims() && settings.jwt.issuer.is_none() {
            let what = format!("rules of `{server}` ask for a claim, and no signed token counts");
            let hint = "say in `[gateway.jwt]` whose tokens do, or name somebody by `identity`";
            return Err(bad(settings, "gateway.jwt.issuer", &what, hint));
        }
        if !access.is_nothing() {
            rules = rules.with(server, of_server(access));
        }
    }
    Ok(rules)
}

fn of_server(access: &Access) -> ServerRules {
    let meant = |rules: &[AccessRule]| rules.iter().map(rule).collect();
    ServerRules {
        allow: meant(&access.allow),
        deny: meant(&access.deny),
    }
}

fn rule(said: &AccessRule) -> Rule {
    let whose = match &said.caller {
        Caller::Named(name) => Whose::Named(name.clone()),
        Caller::WithClaim { claim, has } => Whose::Claim {
            claim: claim.clone(),
            has: has.clone(),
        },
        Caller::Everybody => Whose::Everybody,
    };
    Rule {
        whose,
        tools: said.tools.clone(),
    }
}
