//! The world of a story with several servers behind one place.

use crate::prelude::*;

/// Several servers behind a gateway, by their names.
pub(crate) struct Merged {
    pub(crate) servers: Vec<(&'static str, LedgerServer)>,
    pub(crate) warm: Warmline,
    pub(crate) gateway: Gateway,
}

impl Merged {
    /// These servers behind a gateway that asks nobody who they are.
    pub(crate) async fn new(personalities: Vec<(&'static str, Personality)>) -> Self {
        Self::beside(personalities, Vec::new(), |options| options).await
    }

    /// The same, of servers that are declared to speak the modern era.
    pub(crate) async fn modern(personalities: Vec<(&'static str, Personality)>) -> Self {
        Self::modern_with(personalities, |options| options).await
    }

    /// The same with a gateway that is told more.
    pub(crate) async fn modern_with(
        personalities: Vec<(&'static str, Personality)>,
        decide: impl FnOnce(GatewayOptions) -> GatewayOptions,
    ) -> Self {
        let declare =
            |name: &str, server: &LedgerServer| Server::http(name, server.url()).era(Era::Modern);
        Self::declaring(personalities, Vec::new(), declare, decide).await
    }

    /// The same beside others that are no servers of ours, with a gateway that is told more.
    pub(crate) async fn beside(
        personalities: Vec<(&'static str, Personality)>,
        others: Vec<Server>,
        decide: impl FnOnce(GatewayOptions) -> GatewayOptions,
    ) -> Self {
        let declare = |name: &str, server: &LedgerServer| Server::http(name, server.url());
        Self::declaring(personalities, others, declare, decide).await
    }

    /// Declares another server.
    pub(crate) fn add_server(&self, server: Server) {
        self.warm.add_server(server).unwrap();
    }

    /// How many messages of this method `alpha` and `beta` received.
    pub(crate) fn asked(&self, method: &str) -> (usize, usize) {
        let of = |name| self.server(name).ledger().messages_received(method);
        (of("alpha"), of("beta"))
    }

    async fn declaring(
        personalities: Vec<(&'static str, Personality)>,
        others: Vec<Server>,
        declare: impl Fn(&str, &LedgerServer) -> Server,
        decide: impl FnOnce(GatewayOptions) -> GatewayOptions,
    ) -> Self {
        let start = |(name, personality)| (name, LedgerServer::start(personality).unwrap());
        let servers: Vec<_> = personalities.into_iter().map(start).collect();
        let declared = servers.iter().map(|(name, server)| declare(name, server));
        let declared: Vec<_> = declared.chain(others).collect();
        let warm = Warmline::builder().servers(declared).build().unwrap();
        let options = decide(local());
        let gateway = Gateway::start(warm.clone(), options).await.unwrap();
        Self {
            servers,
            warm,
            gateway,
        }
    }

    /// A legacy client in front of all of them.
    pub(crate) async fn greet(&self, path: &str, capabilities: Value) -> Legacy {
        let address = self.gateway.address();
        Legacy::greet_at(address, path, NEWEST, capabilities, Vec::new()).await
    }

    pub(crate) fn server(&self, name: &str) -> &LedgerServer {
        let known = self.servers.iter().find(|(known, _)| *known == name);
        &known.unwrap().1
    }

    /// Ends the session of a client, and then everything.
    pub(crate) async fn finish_with(self, client: &Legacy) {
        client.delete().await;
        self.finish().await;
    }

    /// Ends everything; nothing was done to the servers that must not be.
    pub(crate) async fn finish(self) {
        self.gateway.stop().await;
        self.warm.close().await;
        for (name, server) in &self.servers {
            assert_eq!(server.violations(), Vec::<String>::new(), "{name}");
        }
    }
}

/// Asks for a list, and gives its result.
pub(crate) async fn list(client: &Legacy, method: &str, params: Value) -> Value {
    let answer = ask(client, method, params).await;
    assert!(answer["result"].is_object(), "{answer}");
    answer["result"].clone()
}

/// Asks, and gives the answer.
pub(crate) async fn ask(client: &Legacy, method: &str, params: Value) -> Value {
    let message = json!({ "jsonrpc": "2.0", "id": 3, "method": method, "params": params });
    client.post(&message).await.answer().await
}

/// What stands in a list under a member.
pub(crate) fn each<'v>(result: &'v Value, list: &str, member: &str) -> Vec<&'v str> {
    let items = result[list].as_array().unwrap().iter();
    items.map(|item| item[member].as_str().unwrap()).collect()
}
