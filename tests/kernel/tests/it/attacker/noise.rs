//! Bytes that mean nothing, too many of them, too few of them, and in no order.

use super::siege::{MALLORY, Siege, refusal, small};
use talea_kernel_tests::{Client, needs_root};
use talea_proto::wire::request_op::HELLO;
use talea_proto::{Code, MESSAGE_MAX, Named, Reply, Request, SpecId, VERSION};

/// Numbers in an order that the seed decides (a linear congruential generator, its high half).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 32
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.next() as u8).collect()
    }
}

/// What may come back to bytes without a meaning: a typed refusal, or the end of a list that was
/// asked for by chance.
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
            ),
            "{refusal:?}"
        ),
        Reply::Session(info) => assert_eq!(info.uid, MALLORY),
        Reply::End
        | Reply::Status(_)
        | Reply::Plugin(_)
        | Reply::PluginCpu(_)
        | Reply::Explained { .. }
        | Reply::Welcome { .. } => {}
        other => panic!("noise was answered with {other:?}"),
    }
}

/// Sends bytes on a greeted connection; the answer. `None`: hung up.
fn said(client: &Client, bytes: &[u8]) -> Option<Reply> {
    // A connection that the daemon has ended takes nothing any more.
    if client.send_bytes(bytes) != "sent" {
        return None;
    }
    client.receive().map(|(_, reply)| reply)
}

#[test]
fn retif_d1_d6_noise_of_every_length_is_refused_or_hung_up_on() {
    needs_root!();
    let siege = Siege::new("attack-noise");
    let mallory = Siege::mallory();
    let mut seed = 1;
    siege.under(|| {
        let mut dice = Dice(seed);
        seed += 1;
        println!("noise of seed {}", seed - 1);
        let mut client = mallory.connect(&siege.daemon);
        for length in 0..=300 {
            if let Some(reply) = said(&client, &dice.bytes(length)) {
                is_harmless(&reply);
            } else {
                // Only a message that reads as the end of the connection ends it.
                assert_eq!(length, 0, "hung up on {length} bytes");
                client.close();
                client = mallory.connect(&siege.daemon);
            }
        }
        client.close();
        // Before hello there is no second chance.
        for length in (0..=300).step_by(15) {
            let stranger = mallory.connect_silently(&siege.daemon);
            if let Some(reply) = said(&stranger, &dice.bytes(length)) {
                let code = refusal(reply).code;
                assert!(matches!(code, Code::Malformed | Code::Version), "{code:?}");
                assert_eq!(stranger.receive(), None, "{length} bytes before hello");
            }
            stranger.close();
        }
    });
}

#[test]
fn retif_d6_a_true_header_before_noise_is_still_noise() {
    needs_root!();
    let siege = Siege::new("attack-headers");
    let mallory = Siege::mallory();
    let mut seed = 1000;
    siege.under(|| {
        let mut dice = Dice(seed);
        seed += 1;
        let mut client = mallory.connect(&siege.daemon);
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
                message.extend(dice.bytes(length));
                match said(&client, &message) {
                    Some(reply) => is_harmless(&reply),
                    None => panic!("hung up on operation {op} with {length} bytes"),
                }
                if op == HELLO && length == 4 {
                    // That was a hello to versions that nobody speaks, and the end of the
                    // connection.
                    client.close();
                    client = mallory.connect(&siege.daemon);
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
    let siege = Siege::new("attack-mutants");
    let mallory = Siege::mallory();
    let mut seed = 2000;
    siege.under(|| {
        let mut dice = Dice(seed);
        seed += 1;
        let client = mallory.connect(&siege.daemon);
        for request in [
            Request::Create(small()),
            Request::CreateGroup(vec![small(); 3]),
            Request::Change { spec: SpecId(3), task: small() },
            Request::Attach { spec: SpecId(3), thread: Named::Number(1) },
            Request::Explain(small()),
        ] {
            let mut buffer = vec![0; MESSAGE_MAX];
            let length = request.encode(9, &mut buffer);
            buffer.truncate(length);
            for _ in 0..60 {
                let mut bytes = buffer.clone();
                match dice.next() % 3 {
                    0 => {
                        let at = 8 + dice.next() as usize % (length - 8);
                        bytes[at] ^= 1 << (dice.next() % 8);
                    }
                    1 => bytes.truncate(1 + dice.next() as usize % (length - 1)),
                    _ => bytes.extend(dice.bytes(1 + length % 7)),
                }
                // Some of them still make sense: whoever flips a bit of a period asks for another
                // period.
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
    let siege = Siege::new("attack-endless");
    let mallory = Siege::mallory();
    siege.under(|| {
        let client = mallory.connect(&siege.daemon);
        for length in [MESSAGE_MAX, MESSAGE_MAX + 1, 2 * MESSAGE_MAX, 65_536, 100_000] {
            // Begins as a good request and does not end.
            let mut message = header(11, VERSION);
            message.resize(length, 0);
            let no = refusal(said(&client, &message).expect("an answer"));
            assert_eq!(no.code, Code::Malformed, "{length} bytes");
        }
        // What the kernel does not take is not sent, and the connection goes on.
        assert!(client.send_bytes(&vec![0; 1 << 20]).starts_with("errno"));
        assert!(matches!(client.ask(&Request::Status), Reply::Status(_)));
        client.close();
    });
}

#[test]
fn r38_a_conversation_in_no_order_is_refused_word_by_word() {
    needs_root!();
    let siege = Siege::new("attack-order");
    let mallory = Siege::mallory();
    siege.under(|| {
        // Without hello.
        for request in [Request::Status, Request::Create(small()), Request::Stop { release: true }]
        {
            let stranger = mallory.connect_silently(&siege.daemon);
            assert_eq!(refusal(stranger.ask(&request)).code, Code::Version);
            assert_eq!(stranger.receive(), None);
            stranger.close();
        }
        // Hello to another version, hello twice, a daemon's own words.
        let stranger = mallory.connect_silently(&siege.daemon);
        let hello = Request::Hello { min: VERSION + 1, max: u16::MAX };
        assert_eq!(refusal(stranger.ask(&hello)).code, Code::Version);
        stranger.close();
        let client = mallory.connect(&siege.daemon);
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
