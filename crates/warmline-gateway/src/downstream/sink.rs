//! Sends responses to a client with a single stream.
//!
//! A Streamable HTTP client reads the body of its own response. A client of HTTP+SSE or stdio gets
//! the messages of all its responses on one channel, which its transport frames as events or lines.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Response};
use tokio::sync::mpsc;
use warmline_core::message::envelope::Message;
use warmline_core::message::params::Params;
use warmline_core::protocol::headers::SESSION_ID;

use super::RequestContext;
use super::message::InboundMessage;
use crate::limits::usage::IdentityReplyBudget;
use crate::response::ResponseBody;
use crate::response::rejection::RequestRejection;
use crate::response::stream::charge_if_large;

/// The one stream of a client, with the budget that its unread messages are charged to.
#[derive(Clone)]
pub(super) struct ClientSink {
    pub(super) messages: mpsc::Sender<Bytes>,
    pub(super) reply_budget: Option<IdentityReplyBudget>,
}

impl ClientSink {
    /// The response to a message, unless it was rejected already, and the client session that it opens.
    pub(super) async fn answer(
        context: &RequestContext<'_>,
        inbound: InboundMessage,
        rejection: Option<RequestRejection>,
    ) -> (Response<ResponseBody>, Option<HeaderValue>) {
        let response = match rejection {
            None => super::handle_message(context, inbound).await.1,
            Some(rejection) => {
                let id = inbound.message().and_then(Message::raw_id);
                let response = rejection.to_response(id, context.subject.error_detail());
                let none = Params::empty();
                let params = inbound.params().unwrap_or(&none);
                let message = inbound.method().map(|method| (method, params));
                context.audit_rejection_once(message, &response);
                response
            },
        };
        context.log_rejection(&response);
        let opened = response.headers().get(SESSION_ID).cloned();
        (response, opened)
    }

    /// Opens the GET stream of a legacy client, and sends its messages until it ends.
    pub(super) async fn send_get_stream(&self, context: &RequestContext<'_>) {
        let response = super::handle_without_body(context, &http::Method::GET).await;
        context.log_rejection(&response);
        if response.status().is_success() {
            self.send_response(response).await;
        }
    }

    /// Sends the messages of a response as they come, and drives the call behind it until it ends,
    /// also while the client reads nothing or has left.
    pub(super) async fn send_response(&self, response: Response<ResponseBody>) {
        let mut body = response.into_body();
        while let Some(message) = drive_while(&mut body, ResponseBody::poll_message).await {
            let message = charge_if_large(self.reply_budget.as_ref(), message);
            let mut sending = pin!(self.messages.send(message));
            drop(drive_while(&mut body, |_, cx| sending.as_mut().poll(cx)).await);
        }
    }
}

async fn drive_while<T>(
    body: &mut ResponseBody,
    mut poll: impl FnMut(&mut ResponseBody, &mut Context<'_>) -> Poll<T>,
) -> T {
    std::future::poll_fn(|cx| {
        body.drive_call(cx);
        poll(body, cx)
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use http::StatusCode;
    use tokio::sync::oneshot;
    use warmline_platform::clock;

    use super::*;
    use crate::limits::RequestPermit;
    use crate::response::event_queue::EventQueue;
    use crate::response::stream::{
        AcceptedFormats, CallFuture, DisconnectPolicy, FinalResponse, PrimingEvent, ResponseMode,
        ResponseStream,
    };

    /// reliability O1b: a call is over when its run or its gateway ends it, also where its client
    /// takes nothing of what was said before.
    #[tokio::test(start_paused = true)]
    async fn a_call_ends_though_nobody_takes_what_it_said() {
        let queue = Arc::<EventQueue>::default();
        let (end, asked_to_end) = oneshot::channel::<()>();
        let (over, is_over) = oneshot::channel();
        let calling: CallFuture = Box::pin(async move {
            asked_to_end.await.ok();
            over.send(()).ok();
            FinalResponse {
                status: StatusCode::OK,
                message: "{}".into(),
            }
        });
        let manner = ResponseMode {
            accepts: AcceptedFormats::Events,
            on_disconnect: DisconnectPolicy::Cancel,
            stream_id: None,
            priming: PrimingEvent::Disabled,
        };
        let flow = ResponseStream::for_call(
            calling,
            Arc::clone(&queue),
            manner,
            RequestPermit::default(),
            &Arc::default(),
        );
        for _ in 0..3 {
            queue.push_droppable("{}".into());
        }
        let (out, mut said) = mpsc::channel(1);
        let passing = clock::spawn("passing", async move {
            let sink = ClientSink {
                messages: out,
                reply_budget: None,
            };
            sink.send_response(flow.into_response()).await;
        });
        // Time goes on when nobody has anything to do: the second message waits for the first.
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        end.send(()).unwrap();
        let within = std::time::Duration::from_secs(1);
        tokio::time::timeout(within, is_over)
            .await
            .unwrap()
            .unwrap();
        for _ in 0..4 {
            assert!(said.recv().await.is_some());
        }
        passing.await.unwrap();
    }
}
