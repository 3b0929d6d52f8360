//! Malformed messages: random bytes, wrong lengths, and messages out of order.

use super::fixture::{Fixture, MALLORY, refusal, small};
use talea_core::rng::Rng;
use talea_kernel_tests::{Client, needs_root};
use talea_proto::wire::request_op::{HELLO, SEED};
use talea_proto::{Code, MESSAGE_MAX, Reply, Request, SpecId, ThreadRef, VERSION};

fn random_bytes(rng: &mut Rng, length: usize) -> Vec<u8> {
    (0..length).map(|_| rng.next() as u8).collect()
}

/// Checks that a reply to invalid bytes is harmless: a typed refusal, or the answer to a read-only
/// request that the bytes encode by chance.
#[track_caller]
fn is_harmless(reply: &Reply) {
    match reply {
        Reply::Refused(refusal) => assert!(
            matches!(
                refusal.code,
                Code::Malformed
                    | Code::Version
                    | Code::NoSuchSpec
                    | Code::NotRoot
                    | Code::NoPlugin
                    | Code::UnknownPlugin
                    | Code::NotFrontEnd
            ),
            "{refusal:?}"
        ),
        Reply::Session(info) => assert_eq!(info.uid, MALLORY),
        Reply::End
        | Reply::Status(_)
        | Reply::Counters(_)
        | Reply::Plugin(_)
        | Reply::PluginCpu(_)
        | Reply::Explained { .. }
        | Reply::Welcome { .. } => {}
        other => panic!("noise was answered with {other:?}"),
    }
}

/// Sends bytes on a connection after `Hello`; returns the answer, `None` if the daemon closed it.
fn said(client: &Client, bytes: &[u8]) -> Option<Reply> {
    // A connection that the daemon has ended takes nothing any more.
    if client.send_bytes(bytes) != "sent" {
        return None;
    }
    client.receive().map(|(_, reply)| reply)
}

#[test]
fn retif_d1_d6_random_bytes_of_every_length_are_refused_or_disconnected() {
    needs_root!();
    let fixture = Fixture::new("attack-noise");
    let mallory = Fixture::mallory();
    let mut seed = 1;
    fixture.under(|| {
        let mut rng = Rng::new(seed);
        seed += 1;
        println!("noise of seed {}", seed - 1);
        let mut client = mallory.connect(&fixture.daemon);
        for length in 0..=300 {
            if let Some(reply) = said(&client, &random_bytes(&mut rng, length)) {
                is_harmless(&reply);
            } else {
                // Only a message that reads as the end of the connection ends it.
                assert_eq!(length, 0, "hung up on {length} bytes");
                client.close();
                client = mallory.connect(&fixture.daemon);
            }
        }
        client.close();
        // Before hello there is no second chance.
        for length in (0..=300).step_by(15) {
            let fresh = mallory.connect_silently(&fixture.daemon);
            if let Some(reply) = said(&fresh, &random_bytes(&mut rng, length)) {
                let code = refusal(reply).code;
                assert!(matches!(code, Code::Malformed | Code::Version), "{code:?}");
                assert_eq!(fresh.receive(), None, "{length} bytes before hello");
            }
            fresh.close();
        }
    });
}

#[test]
fn retif_d6_a_valid_header_before_random_bytes_is_refused() {
    needs_root!();
    let fixture = Fixture::new("attack-headers");
    let mallory = Fixture::mallory();
    let mut seed = 1000;
    fixture.under(|| {
        let mut rng = Rng::new(seed);
        seed += 1;
        let mut client = mallory.connect(&fixture.daemon);
        for op in (0..=20).chain([0x7fff, 0x8000, 0x8001, 0x8002, 0x800c, 0xffff]) {
            for length in [
                0,
                1,
                3,
                4,
                7,
                8,
                9,
                12,
                16,
                24,
                31,
                200,
                207,
                208,
                209,
                216,
                217,
                424,
                8 + 64 * 208,
            ] {
                let mut message = header(op, VERSION);
                message.extend(random_bytes(&mut rng, length));
                match said(&client, &message) {
                    // Any 16 bytes are a seed.
                    Some(Reply::Done) if op == SEED && length == 16 => {}
                    Some(reply) => is_harmless(&reply),
                    None => panic!("hung up on operation {op} with {length} bytes"),
                }
                if op == HELLO && length == 4 {
                    // That was a hello with unsupported versions, and the end of the
                    // connection.
                    client.close();
                    client = mallory.connect(&fixture.daemon);
                }
            }
        }
        // No version but ours is spoken after hello.
        for version in [0, VERSION + 1, u16::MAX] {
            let code = refusal(said(&client, &header(11, version)).expect("an answer")).code;
            assert_eq!(code, Code::Version);
        }
        client.close();
    });
}

fn header(op: u16, version: u16) -> Vec<u8> {
    let mut message = Vec::new();
    message.extend(op.to_le_bytes());
    message.extend(version.to_le_bytes());
    message.extend(77u32.to_le_bytes());
    message
}

#[test]
fn retif_d6_a_message_with_one_byte_changed_missing_or_added_grants_nothing_by_mistake() {
    needs_root!();
    let fixture = Fixture::new("attack-mutants");
    let mallory = Fixture::mallory();
    let mut seed = 2000;
    fixture.under(|| {
        let mut rng = Rng::new(seed);
        seed += 1;
        let client = mallory.connect(&fixture.daemon);
        for request in [
            Request::Create(small()),
            Request::CreateGroup(vec![small(); 3]),
            Request::Change { spec: SpecId(3), task: small() },
            Request::Attach { spec: SpecId(3), thread: ThreadRef::Tid(1) },
            Request::Explain(small()),
        ] {
            let mut buffer = vec![0; MESSAGE_MAX];
            let length = request.encode(9, &mut buffer);
            buffer.truncate(length);
            for _ in 0..60 {
                let mut bytes = buffer.clone();
                match rng.next() % 3 {
                    0 => {
                        let at = 8 + rng.next() as usize % (length - 8);
                        bytes[at] ^= 1 << (rng.next() % 8);
                    }
                    1 => bytes.truncate(1 + rng.next() as usize % (length - 1)),
                    _ => bytes.extend(random_bytes(&mut rng, 1 + length % 7)),
                }
                // Some of them are still valid: a flipped bit of a period requests another period.
                match said(&client, &bytes).expect("an answer") {
                    Reply::Granted(grant) => client.done(&Request::Release(grant.spec)),
                    Reply::GrantedGroup(group) => {
                        for grant in group {
                            client.done(&Request::Release(grant.spec));
                        }
                    }
                    Reply::Refused(_) | Reply::Explained { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        client.close();
    });
}

#[test]
fn retif_d6_endless_messages_are_refused_whole() {
    needs_root!();
    let fixture = Fixture::new("attack-endless");
    let mallory = Fixture::mallory();
    fixture.under(|| {
        let client = mallory.connect(&fixture.daemon);
        for length in [MESSAGE_MAX, MESSAGE_MAX + 1, 2 * MESSAGE_MAX, 65_536, 100_000] {
            // Begins as a good request and does not end.
            let mut message = header(11, VERSION);
            message.resize(length, 0);
            let no = refusal(said(&client, &message).expect("an answer"));
            assert_eq!(no.code, Code::Malformed, "{length} bytes");
        }
        // The kernel refuses to send this message, and the connection stays usable.
        assert!(client.send_bytes(&vec![0; 1 << 20]).starts_with("errno"));
        assert!(matches!(client.ask(&Request::Status), Reply::Status(_)));
        client.close();
    });
}

#[test]
fn r38_messages_out_of_order_are_refused() {
    needs_root!();
    let fixture = Fixture::new("attack-order");
    let mallory = Fixture::mallory();
    fixture.under(|| {
        // Without hello.
        for request in [Request::Status, Request::Create(small()), Request::Stop { release: true }]
        {
            let fresh = mallory.connect_silently(&fixture.daemon);
            assert_eq!(refusal(fresh.ask(&request)).code, Code::Version);
            assert_eq!(fresh.receive(), None);
            fresh.close();
        }
        // Hello to another version, hello twice, a daemon's own words.
        let fresh = mallory.connect_silently(&fixture.daemon);
        let hello = Request::Hello { min: VERSION + 1, max: u16::MAX };
        assert_eq!(refusal(fresh.ask(&hello)).code, Code::Version);
        fresh.close();
        let client = mallory.connect(&fixture.daemon);
        let again = client.ask(&Request::Hello { min: VERSION, max: VERSION });
        assert!(matches!(again, Reply::Welcome { .. } | Reply::Refused(_)), "{again:?}");
        // Many requests without waiting: each is answered once, in order.
        let sent: Vec<u32> = (0..100)
            .map(|round| match round % 4 {
                0 => client.send(&Request::Query(SpecId(u64::MAX))),
                1 => client.send(&Request::Status),
                2 => client.send(&Request::Detach(SpecId(0))),
                _ => client.send(&Request::Plugin(u32::MAX)),
            })
            .collect();
        for seq in sent {
            assert_eq!(client.receive().expect("an answer").0, seq);
        }
        client.close();
    });
}
