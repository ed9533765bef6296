//! Authentication beside our own tokens: signed tokens, trusted proxies, and their metadata.

use http::header::{AUTHORIZATION, COOKIE, HOST};
use http::uri::Scheme;
use http::{HeaderName, Uri};
use warmline_config::gateway_settings::{AuthMode, GatewaySettings};
use warmline_config::{ConfigError, closest_match};
use warmline_engine::settings::SettingsGroup as _;

use super::{bad_value, incomplete, shorten};
use crate::{
    AuthMethod, IpNetwork, JWT_ALGORITHMS, JwtAlgorithm, JwtOptions, KeySource, ProtectedResource,
    TrustedProxies,
};

pub(super) fn extra_auth_methods(
    settings: &GatewaySettings,
) -> Result<Vec<AuthMethod>, ConfigError> {
    let proxies = trusted_proxies(settings)?.map(AuthMethod::TrustedProxies);
    let jwt = jwt_options(settings)?.map(AuthMethod::Jwt);
    let (what, hint) = match settings.auth {
        AuthMode::Jwt if jwt.is_none() => (
            "`gateway.auth` is `jwt`, and no issuer is configured",
            "set `issuer`, `audiences`, and `keys_url` or `keys_file` in `[gateway.jwt]`",
        ),
        AuthMode::Proxy if proxies.is_none() => (
            "`gateway.auth` is `proxy`, and no proxy is trusted",
            "set their addresses (`trusted_proxies`) and the header with the caller (`proxy_header`)",
        ),
        AuthMode::None if jwt.is_some() || proxies.is_some() => (
            "`gateway.auth` is `none`, and other settings require authentication",
            "set `jwt` or `proxy` to use those alone, or `tokens`",
        ),
        AuthMode::Local | AuthMode::Tokens | AuthMode::Jwt | AuthMode::Proxy | AuthMode::None => {
            return Ok(proxies.into_iter().chain(jwt).collect());
        },
    };
    Err(bad_value(settings, "gateway.auth", what, hint))
}

fn trusted_proxies(settings: &GatewaySettings) -> Result<Option<TrustedProxies>, ConfigError> {
    const ADDRESSES: &str = "gateway.trusted_proxies";
    const HEADER: &str = "gateway.proxy_header";
    let name = match (&settings.proxy_header, settings.trusted_proxies.as_slice()) {
        (None, []) => return Ok(None),
        (Some(name), [_, ..]) => name,
        (Some(_), []) => {
            let what = format!("`{HEADER}` is set, and no proxy is trusted");
            let hint = "name them: `trusted_proxies = [\"10.0.0.7\"]`";
            return Err(bad_value(settings, HEADER, what, hint));
        },
        (None, _) => {
            let hint = "name the header that they set, and never pass on from a caller: \
                        `proxy_header = \"X-Forwarded-User\"`";
            return Err(incomplete(settings, ADDRESSES, HEADER, hint));
        },
    };
    let is_free = |header: &HeaderName| ![AUTHORIZATION, COOKIE, HOST].contains(header);
    let Some(header) = name.parse().ok().filter(is_free) else {
        let what = format!("`{}` cannot be the header of a proxy", shorten(name));
        let hint = "write a name such as `X-Forwarded-User`";
        return Err(bad_value(settings, HEADER, what, hint));
    };
    let networks = settings.trusted_proxies.iter().map(|text| {
        let network = IpNetwork::parse(text).filter(|network| !network.is_all());
        network.ok_or_else(|| {
            let what = format!("`{}` is not the address of a proxy", shorten(text));
            let hint = "write an address (`10.0.0.7`) or a network (`10.0.0.0/8`); trusting every \
                        address is no authentication";
            bad_value(settings, ADDRESSES, what, hint)
        })
    });
    Ok(Some(TrustedProxies {
        addresses: networks.collect::<Result<_, _>>()?,
        header,
    }))
}

fn jwt_options(settings: &GatewaySettings) -> Result<Option<JwtOptions>, ConfigError> {
    const ISSUER: &str = "gateway.jwt.issuer";
    let Some(issuer) = &settings.jwt_issuer else {
        let hint = "set the issuer, exactly as in its tokens (`iss`)";
        return check_none_set(settings, "gateway.jwt.", ISSUER, hint).map(|()| None);
    };
    if settings.jwt_audiences.is_empty() {
        let what = "`gateway.jwt` does not set the audiences of tokens";
        let hint =
            "name this gateway as the issuer does: `audiences = [\"https://mcp.example.com\"]`";
        return Err(bad_value(settings, ISSUER, what, hint));
    }
    let keys = match (&settings.jwt_keys_url, &settings.jwt_keys_file) {
        (Some(url), None) => KeySource::Url(check_keys_url(settings, url)?),
        (None, Some(file)) => KeySource::File(file.clone()),
        (url, _) => {
            let what = match url {
                Some(_) => "`gateway.jwt` sets two sources of the issuer's keys",
                None => "`gateway.jwt` does not set the source of the issuer's keys",
            };
            let hint = "write `keys_url = \"https://…\"` or `keys_file = \"path\"`";
            return Err(bad_value(settings, ISSUER, what, hint));
        },
    };
    Ok(Some(JwtOptions {
        audiences: settings.jwt_audiences.clone(),
        algorithms: parse_algorithms(settings)?,
        leeway: settings.jwt_leeway,
        identity_claim: settings.jwt_identity.clone(),
        ..JwtOptions::new(issuer, "", keys)
    }))
}

/// The settings of a table have no effect without one of them.
fn check_none_set(
    settings: &GatewaySettings,
    table: &str,
    needed: &str,
    hint: &str,
) -> Result<(), ConfigError> {
    let changed = GatewaySettings::default().changed_keys(settings);
    let needs_it = |key: &&str| key.starts_with(table) && *key != "gateway.jwt.leeway";
    match changed.into_iter().find(needs_it) {
        Some(key) => Err(incomplete(settings, key, needed, hint)),
        None => Ok(()),
    }
}

/// Nobody between the gateway and the issuer may change keys.
fn check_keys_url(settings: &GatewaySettings, url: &str) -> Result<String, ConfigError> {
    let uri = url.parse::<Uri>().ok();
    let is_good = uri.is_some_and(|uri| {
        let host = uri.host().map(|host| host.trim_matches(['[', ']']));
        let is_secure = uri.scheme() == Some(&Scheme::HTTPS);
        let is_plain = uri.scheme() == Some(&Scheme::HTTP);
        host.is_some_and(|host| is_secure || (is_plain && crate::endpoint::is_loopback_name(host)))
    });
    if is_good {
        return Ok(url.to_owned());
    }
    let what = format!("keys cannot be fetched from `{}`", shorten(url));
    let hint = "write an `https` URL; `http` is for this machine alone";
    Err(bad_value(settings, "gateway.jwt.keys_url", what, hint))
}

fn parse_algorithms(settings: &GatewaySettings) -> Result<Vec<JwtAlgorithm>, ConfigError> {
    const KEY: &str = "gateway.jwt.algorithms";
    let names = JWT_ALGORITHMS.map(|algorithm| format!("{algorithm:?}"));
    let some_of = || format!("write some of {}", names.join(", "));
    if settings.jwt_algorithms.is_empty() {
        let what = format!("`{KEY}` is empty: no token would be accepted");
        return Err(bad_value(settings, KEY, what, some_of()));
    }
    let algorithms = settings.jwt_algorithms.iter().map(|name| {
        let mut known = JWT_ALGORITHMS.into_iter().zip(&names);
        let known = known.find(|(_, known)| *known == name);
        known.map(|(algorithm, _)| algorithm).ok_or_else(|| {
            let what = format!("`{}` is not a supported algorithm", shorten(name));
            let hint = match closest_match(name, names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => some_of(),
            };
            bad_value(settings, KEY, what, hint)
        })
    });
    algorithms.collect()
}

pub(super) fn protected_resource(
    settings: &GatewaySettings,
) -> Result<Option<ProtectedResource>, ConfigError> {
    const URL: &str = "gateway.resource.url";
    let Some(url) = &settings.resource_url else {
        let hint = "set the gateway's URL as clients know it: `url = \"https://mcp.example.com\"`";
        return check_none_set(settings, "gateway.resource.", URL, hint).map(|()| None);
    };
    if !is_base_url(url) {
        let what = format!("`{}` is not a URL without a path", shorten(url));
        let hint = "write scheme and host alone: `https://mcp.example.com`";
        return Err(bad_value(settings, URL, what, hint));
    }
    let authorization_servers = match settings.resource_authorization_servers.as_slice() {
        [] => settings.jwt_issuer.iter().cloned().collect(),
        named => named.to_vec(),
    };
    if authorization_servers.is_empty() {
        let what = "`gateway.resource` does not name an authorization server";
        let hint = "write `authorization_servers = [\"https://login.example.com\"]`, or set the \
                    issuer in `[gateway.jwt]`";
        return Err(bad_value(settings, URL, what, hint));
    }
    Ok(Some(ProtectedResource {
        url: url.clone(),
        authorization_servers,
        scopes: settings.resource_scopes.clone(),
    }))
}

fn is_base_url(url: &str) -> bool {
    let Ok(uri) = url.parse::<Uri>() else {
        return false;
    };
    let is_http = [Some(&Scheme::HTTPS), Some(&Scheme::HTTP)].contains(&uri.scheme());
    is_http && uri.host().is_some() && uri.path() == "/" && uri.query().is_none()
}
