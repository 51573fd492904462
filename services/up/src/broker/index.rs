//! Keeps the router of `mqtt5` in step with the [`Subscribers`]: before a message is routed, the router has its topic as a filter of each subscriber.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Instant;

use mqtt5::broker::events::{ClientSubscribeEvent, ClientUnsubscribeEvent, SubAckReasonCode};
use mqtt5::broker::router::{MessageRouter, SubscriptionRequest};
use mqtt5::broker::storage::StoredSubscription;
use mqtt5::broker::{DynamicStorage, StorageBackend as _};
use mqtt5::types::ProtocolVersion;
use tokio::sync::Mutex;

use super::subscribers::{Plain, RouterChange, Subscribers};

/// Stands for the server itself where it publishes.
const SERVER: &str = "";

/// The subscribers of a running broker. Each call returns when the router has what follows from it.
#[derive(Default)]
pub(super) struct Index {
    subscribers: Mutex<Subscribers>,
    /// The router has the handler that has this, so this must not keep the router.
    inside: OnceLock<(Weak<MessageRouter>, Arc<DynamicStorage>)>,
}

impl Index {
    /// Before the broker runs: what it is made of.
    pub(super) fn attach(&self, router: &Arc<MessageRouter>, storage: Arc<DynamicStorage>) {
        let _ = self.inside.set((Arc::downgrade(router), storage));
    }

    /// The router, while the broker is there.
    pub(super) fn router(&self) -> Option<Arc<MessageRouter>> {
        self.inside.get().and_then(|(router, _)| router.upgrade())
    }

    pub(super) async fn connected(&self, client: &str, ends_with_connection: bool) {
        self.change(|subscribers| subscribers.connected(client, ends_with_connection)).await;
    }

    pub(super) async fn disconnected(&self, client: &str) {
        self.change(|subscribers| subscribers.disconnected(client)).await;
    }

    pub(super) async fn subscribed(&self, event: &ClientSubscribeEvent) {
        let Some((_, storage)) = self.inside.get() else { return };
        let Ok(Some(session)) = storage.get_session(&event.client_id).await else { return };
        for subscription in &event.subscriptions {
            use SubAckReasonCode::{GrantedQoS0, GrantedQoS1, GrantedQoS2};
            let (filter, granted) = (&*subscription.topic_filter, [GrantedQoS0, GrantedQoS1, GrantedQoS2]);
            let stored = session.subscriptions.get(filter).filter(|_| granted.contains(&subscription.result));
            let Some(stored) = stored else { continue };
            // Of a session that was taken over meanwhile nothing is left in the router.
            if self.is_in_router(&event.client_id, filter).await {
                self.change(|subscribers| subscribers.subscribed(&event.client_id, filter, plain(filter, stored)))
                    .await;
            }
        }
    }

    pub(super) async fn unsubscribed(&self, event: &ClientUnsubscribeEvent) {
        for filter in &event.topic_filters {
            self.change(|subscribers| subscribers.unsubscribed(&event.client_id, filter)).await;
        }
    }

    /// Before a client's message, or its will, is routed.
    pub(super) async fn publishing(&self, client: &str, topic: &str) {
        self.change(|subscribers| subscribers.publishing(client, topic, Instant::now())).await;
    }

    /// Before a message of the server itself is routed.
    pub(super) async fn server_publishes(&self, topic: &str) {
        self.publishing(SERVER, topic).await;
    }

    /// Before a client's message of QoS 2 is kept, to be routed when the client releases it.
    pub(super) async fn exactly_once(&self, client: &str, topic: &str) {
        self.change(|subscribers| subscribers.exactly_once(client, topic)).await;
    }

    async fn is_in_router(&self, client: &str, filter: &str) -> bool {
        match self.router() {
            Some(router) => router.has_subscription(client, filter).await,
            None => false,
        }
    }

    /// The lock is held until the router has the changes: two of them must not pass each other.
    async fn change(&self, change: impl FnOnce(&mut Subscribers) -> Vec<RouterChange>) {
        let Some(router) = self.router() else { return };
        let mut subscribers = self.subscribers.lock().await;
        for change in change(&mut subscribers) {
            match change {
                RouterChange::Subscribe { client, topic, plain } => {
                    let version = ProtocolVersion::try_from(plain.version).unwrap_or_default();
                    let request = SubscriptionRequest::new(client, topic, plain.qos).with_protocol_version(version);
                    // It refuses only a handling of retained messages that does not exist.
                    let _ = router.subscribe(request).await;
                }
                RouterChange::Unsubscribe { client, filter } => _ = router.unsubscribe(&client, &filter, None).await,
            }
        }
    }
}

/// The subscription, if it has no options.
fn plain(filter: &str, stored: &StoredSubscription) -> Option<Plain> {
    let has_options = stored.no_local
        || stored.retain_as_published
        || stored.retain_handling != 0
        || stored.subscription_id.is_some()
        || stored.change_only
        || stored.flow_id.is_some()
        || filter.starts_with("$share/");
    (!has_options).then_some(Plain { qos: stored.qos, version: stored.protocol_version })
}
