//! What else a child may say: notices, questions, noise.

use super::*;

#[tokio::test]
async fn progress_reaches_the_call_whose_token_it_bears() {
    let script = r#"read_id; a=$id; read_id; b=$id
        for t in $b $a $b 999; do printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":1}}\n' $t; done
        reply $a; reply $b; read_id"#;
    let pipe = spawn(script).await;
    let (mut first, mut second) = (pipe.request(1, line(1)), pipe.request(2, line(2)));
    for (call, id, notices) in [(&mut first, 1, 1), (&mut second, 2, 2)] {
        for _ in 0..notices {
            let PipeNews::Notice(message) = next(call).await else {
                panic!("progress of {id}")
            };
            let params = String::from_utf8(message.params().unwrap().to_vec()).unwrap();
            assert!(
                params.contains(&format!(r#""progressToken":{id},"#)),
                "{params}"
            );
        }
        reply(call).await;
    }
}

#[tokio::test]
async fn news_that_nobody_hears_are_dropped_but_the_reply_never() {
    let script = r#"read_id; i=0; while [ $i -lt 500 ]; do i=$((i+1))
        printf '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%s,"progress":%s}}\n' $id $i; done
        reply $id; read_id; reply $id; read_id"#;
    let pipe = spawn(script).await;
    let mut first = pipe.request(1, line(1));
    // The second is answered after the first: by then all is in, and nobody listened.
    reply(&mut pipe.request(2, line(2))).await;
    let (mut notices, mut missed) = (0, 0);
    loop {
        match next(&mut first).await {
            PipeNews::Notice(_) => notices += 1,
            PipeNews::Missed(count) => missed += count,
            PipeNews::Reply(_) => break,
            news @ (PipeNews::Question(_) | PipeNews::Lost { .. }) => panic!("{news:?}"),
        }
    }
    assert!(missed > 0, "{notices}");
    assert_eq!(notices + missed, 500);
}

/// mcp-spec 6.6.5: a listen that its server ends by a cancel is over, and a result behind it is no stray.
#[tokio::test]
async fn a_listen_ends_by_a_cancel_as_by_a_result() {
    let script = r#"i=0; while [ $i -lt 40 ]; do i=$((i+1)); read_id
        printf '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}\n' $id
        reply $id; done; read_id; reply $id; read_id"#;
    let pipe = spawn(script).await;
    for id in 1..=40 {
        let mut listen = pipe.listen(id, line(id));
        let PipeNews::Reply(message) = next(&mut listen).await else {
            panic!("{id} goes on")
        };
        let result = message.result().unwrap();
        assert_eq!(result, &br#"{"resultType":"complete"}"#[..]);
    }
    reply(&mut pipe.request(41, line(41))).await;
}

#[tokio::test]
async fn subscriptions_and_cancels_reach_the_call_they_name() {
    let script = r#"read_id; a=$id; read_id; b=$id
        printf '{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":%s}}}\n' $b
        printf '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}\n' $b
        printf '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n'
        reply $a; reply $b; read_id"#;
    let pipe = spawn(script).await;
    let caller = Some(Whose::of(&pipe));
    let mut first = pipe.request_of(caller, 1, line(1));
    let mut second = pipe.request_of(caller, 2, line(2));
    let heard = |news| {
        let PipeNews::Notice(message) = news else {
            panic!("no notice: {news:?}")
        };
        message.method().unwrap().to_owned()
    };
    assert_eq!(
        heard(next(&mut second).await),
        "notifications/tools/list_changed"
    );
    assert_eq!(heard(next(&mut second).await), "notifications/cancelled");
    reply(&mut second).await;
    assert_eq!(
        heard(next(&mut first).await),
        "notifications/message",
        "all are one caller's: the oldest gets the rest"
    );
    reply(&mut first).await;
}

#[tokio::test]
async fn a_question_goes_to_the_call_it_names_or_to_the_oldest() {
    let script = r#"read_id; a=$id; read_id; b=$id
        printf '{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{"_meta":{"progressToken":%s}}}\n' $b
        printf '{"jsonrpc":"2.0","id":"q2","method":"roots/list"}\n'
        read -r answer; reply $a; reply $b "\"got\":$answer"; read_id"#;
    let pipe = spawn(script).await;
    let caller = Some(Whose::of(&pipe));
    let mut first = pipe.request_of(caller, 1, line(1));
    let mut second = pipe.request_of(caller, 2, line(2));
    let PipeNews::Question(question) = next(&mut second).await else {
        panic!("a question")
    };
    assert_eq!(question.raw_id(), Some(&br#""q1""#[..]));
    let PipeNews::Question(question) = next(&mut first).await else {
        panic!("a question")
    };
    assert_eq!(question.method(), Some("roots/list"));
    pipe.say(Bytes::from_static(b"{\"my\":\n\"answer\"}"))
        .unwrap();
    reply(&mut first).await;
    assert!(
        reply(&mut second)
            .await
            .contains(r#""got":{"my":"answer"}"#),
        "on one line"
    );
}

/// mcp-spec 4.4.5 Y5: calls of two callers share a pipe, and the question names neither.
#[tokio::test]
async fn a_question_among_calls_of_several_callers_is_refused() {
    let script = r#"read_id; a=$id; read_id; b=$id
        printf '{"jsonrpc":"2.0","id":"q1","method":"elicitation/create","params":{}}\n'; IFS= read -r one
        printf '{"jsonrpc":"2.0","id":"q2","method":"roots/list"}\n'; IFS= read -r two
        reply $a "\"got\":[$one,$two]"; reply $b; read_id"#;
    let pipe = spawn(script).await;
    let callers = [1_u8, 2];
    let [one, other] = callers.each_ref().map(|caller| Some(Whose::of(caller)));
    let mut first = pipe.request_of(one, 1, line(1));
    let mut second = pipe.request_of(other, 2, line(2));
    let got = reply(&mut first).await;
    reply(&mut second).await;
    assert!(
        got.contains(r#"{"jsonrpc":"2.0","id":"q1","result":{"action":"cancel"}}"#),
        "{got}"
    );
    assert!(got.contains(r#""id":"q2","error":{"code":-32601"#), "{got}");
}

/// mcp-spec T32, DESIGN 4: what concerns everybody is told by one call of each caller, the oldest;
/// calls that nobody listens to hear nothing, and are asked nothing. A log line that names no call
/// could be of either caller's, and is told to none of them.
#[tokio::test]
async fn what_concerns_everybody_is_told_by_one_call_of_each_caller() {
    let script = r#"read_id; o=$id; read_id; a=$id; read_id; b=$id; read_id; c=$id
        printf '{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a:b"}}\n'
        printf '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}\n'
        reply $c; reply $b; reply $a
        printf '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{}}\n'; IFS= read -r got
        reply $o "\"got\":$got"; read_id"#;
    let pipe = spawn(script).await;
    let callers = [1_u8, 2];
    let [one, other] = callers.each_ref().map(|caller| Some(Whose::of(caller)));
    let whose = [None, one, one, other];
    let mut calls: Vec<_> = (1..)
        .zip(whose)
        .map(|(id, whose)| pipe.request_of(whose, id, line(id)))
        .collect();
    let expected: [&[&str]; 4] = [
        &[],
        &["notifications/resources/updated"],
        &[],
        &["notifications/resources/updated"],
    ];
    for place in [3, 2, 1] {
        let call = &mut calls[place];
        for method in expected[place] {
            let PipeNews::Notice(message) = next(call).await else {
                panic!("{method} to call {place}")
            };
            assert_eq!(message.method(), Some(*method), "call {place}");
        }
        reply(call).await;
    }
    let got = reply(&mut calls[0]).await;
    assert!(got.contains(r#""result":{"action":"cancel"}"#), "{got}");
}

#[tokio::test]
async fn without_a_call_a_ping_is_answered_and_questions_are_refused() {
    let script = r#"
        ask() { printf '{"jsonrpc":"2.0","id":%s,"method":"%s"}\n' "$1" "$2"; IFS= read -r got; all="$all$got,"; }
        ask 1 ping; ask '"two"' elicitation/create; ask 3 sampling/createMessage; ask 4 no/such; echo asked >&2
        read_id; reply $id "\"all\":[${all%,}]"; read_id"#;
    let pipe = spawn(script).await;
    until_said(&pipe, "asked").await;
    let all = reply(&mut pipe.request(9, line(9))).await;
    for expected in [
        r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":"two","result":{"action":"cancel"}}"#,
        r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32601,"#,
        r#"{"jsonrpc":"2.0","id":4,"error":{"code":-32601,"#,
    ] {
        assert!(all.contains(expected), "{expected} in {all}");
    }
}

#[tokio::test]
async fn d117_a_modern_server_that_asks_is_ignored() {
    let script = r#"read_id; echo '{"jsonrpc":"2.0","id":5,"method":"ping"}'
        echo '{"jsonrpc":"2.0","id":6,"method":"roots/list"}'; reply $id; read_id; reply $id "\"next\":$line"; read_id"#;
    let pipe = spawn(script).await;
    pipe.set_questions(Questions::Ignored);
    reply(&mut pipe.request(1, line(1))).await;
    assert!(
        reply(&mut pipe.request(2, line(2)))
            .await
            .contains(r#""next":{"jsonrpc":"2.0","id":2,"#)
    );
}

/// P114: noise is skipped and counted.
#[tokio::test]
async fn d108_and_d110_noise_is_skipped_and_counted() {
    let script = r#"echo 'Listening on stdio...'; echo; printf '{"a":1\r,"b":2}\n'; printf '\377\376\n'; printf 'a\0b\n'
        echo '[]'; echo '{"no":"rpc"}'; echo '{"jsonrpc":"2.0","id":1,"id":1,"result":{}}'
        while read_id; do printf '{"jsonrpc":"2.0","id":%s,"result":{}}\r\n' $id; done"#;
    let pipe = spawn(script).await;
    reply(&mut pipe.request(1, line(1))).await;
    let report = pipe.report();
    assert_eq!(report.skipped_lines, 7);
    let last = r#"{"jsonrpc":"2.0","id":1,"id":1,"result":{}}"#;
    assert_eq!(report.skipped_line.as_deref(), Some(last));
}

#[tokio::test]
async fn d108_a_message_between_the_noise_starts_the_count_anew() {
    let noise = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo noise; done;";
    let script = format!("{noise} read_id; reply $id; {noise} read_id; reply $id; read_id");
    let pipe = spawn(&script).await;
    reply(&mut pipe.request(1, line(1))).await;
    reply(&mut pipe.request(2, line(2))).await;
    assert_eq!(pipe.report().skipped_lines, 120);
}

#[tokio::test]
async fn d108_nothing_but_noise_ends_the_child() {
    for script in [
        "read_id; while :; do echo noise; done",
        "read_id; head -c 600000 /dev/zero | tr '\\0' x; echo; head -c 600000 /dev/zero | tr '\\0' x; echo; sleep 1000",
    ] {
        let pipe = spawn(script).await;
        let (delivery, trouble) = loss(&mut pipe.request(1, line(1))).await;
        assert_eq!(
            (delivery, trouble.reason),
            (Delivery::Unknown, Reason::BadReply)
        );
        let pid = pipe.report().pid;
        until(|| !is_alive(pid)).await;
    }
}

#[tokio::test]
async fn d111_the_first_reply_wins_and_too_many_strays_end_the_child() {
    let script = "read_id; reply $id '\"n\":1'; reply $id '\"n\":2'; read_id
        i=0; while [ $i -lt 15 ]; do i=$((i+1)); reply 4$i; done; sleep 1000";
    let pipe = spawn(script).await;
    assert!(
        reply(&mut pipe.request(1, line(1)))
            .await
            .contains(r#""n":1"#)
    );
    let (delivery, trouble) = loss(&mut pipe.request(2, line(2))).await;
    assert_eq!(
        (delivery, trouble.reason),
        (Delivery::Unknown, Reason::BadReply)
    );
    assert!(trouble.what.contains("16 replies"), "{}", trouble.what);
}

#[tokio::test]
async fn d112_an_error_without_an_id_belongs_to_a_call_that_is_alone() {
    let error = r#"echo '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse"}}'"#;
    let pipe = spawn(&format!(
        "read_id; {error}; read_id; a=$id; read_id; {error}; reply $a; reply $id; read_id"
    ))
    .await;
    assert!(
        reply(&mut pipe.request(1, line(1)))
            .await
            .contains("-32700")
    );
    let (mut second, mut third) = (pipe.request(2, line(2)), pipe.request(3, line(3)));
    assert!(reply(&mut second).await.contains("result"));
    assert!(reply(&mut third).await.contains("result"));
}

#[tokio::test]
async fn an_error_without_an_id_that_answers_a_notification_ends_no_call() {
    // Whoever says "method not found" has read the message: had it an id, it would be named.
    let refusal = r#"echo '{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no such notification"}}'"#;
    let pipe = spawn(&format!("read_id; {refusal}; reply $id; read_id")).await;
    assert!(
        reply(&mut pipe.request(1, line(1)))
            .await
            .contains("result")
    );
}

#[tokio::test]
async fn an_error_without_an_id_ends_no_call_while_another_was_given_up() {
    let error = r#"echo '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse"}}'"#;
    let pipe = spawn(&format!(
        "read_id; echo ready >&2; read_id; {error}; reply $id; read_id"
    ))
    .await;
    let given_up = pipe.request(1, line(1));
    until_said(&pipe, "ready").await;
    drop(given_up);
    assert!(
        reply(&mut pipe.request(2, line(2)))
            .await
            .contains("result")
    );
}

/// P70: stderr is always drained.
#[tokio::test]
async fn d113_a_flood_on_stderr_stops_nobody() {
    let script = "head -c 5000000 /dev/zero | tr '\\0' 'e' >&2; echo >&2; echo last >&2; while read_id; do reply $id; done";
    let pipe = spawn(script).await;
    reply(&mut pipe.request(1, line(1))).await;
    until(|| pipe.report().stderr_tail.ends_with("last")).await;
    assert!(pipe.report().stderr_tail.len() < 64 << 10);
}
