//! Strict decoding: an invalid message is refused with the invalid part, without a panic.

use crate::strategies::{reply, request};
use proptest::collection::vec;
use proptest::prelude::*;
use talea_core::Span;
use talea_proto::message::Name;
use talea_proto::wire::{AttrWire, GrantedWire, Header, PluginAnswerWire, TaskWire, fuzz_wire};
use talea_proto::wire::{decode_reply, decode_request, request_op};
use talea_proto::{
    Code, Field, GROUP_MAX, MESSAGE_MAX, PLUGINS_MAX, Reply, Request, SpecId, Task, ThreadRef,
    VERSION,
};

fn bytes_of(request: &Request) -> Vec<u8> {
    let mut buffer = vec![0; MESSAGE_MAX];
    let len = request.encode(7, &mut buffer);
    buffer.truncate(len);
    buffer
}

/// Encodes a request, damages it, and expects `field` to be reported as malformed.
#[track_caller]
fn refused(request: &Request, field: Field, damage: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = bytes_of(request);
    damage(&mut bytes);
    let garbled = decode_request(&bytes).expect_err("an invalid message was decoded");
    assert_eq!(
        (garbled.refusal.code, garbled.refusal.field),
        (Code::Malformed, field),
        "{garbled:?}"
    );
}

const TASK: usize = size_of::<Header>();

#[test]
fn the_layout_equals_its_documentation() {
    for (size, documented) in [
        (size_of::<Header>(), 8),
        (size_of::<TaskWire>(), 208),
        (size_of::<AttrWire>(), 168),
        (size_of::<GrantedWire>(), 72),
        (size_of::<PluginAnswerWire>(), 192),
    ] {
        assert_eq!(size, documented);
    }
    let mut task = Task::default();
    task.params.period = Some(Span::from_ns(0x0102_0304_0506_0708));
    task.plugin = Name::new("rm");
    task.cpus.insert(65);
    let bytes = bytes_of(&Request::Create(task));
    assert_eq!(bytes[..8], [2, 0, 4, 0, 7, 0, 0, 0], "op, version, seq, all little-endian");
    assert_eq!(bytes[8..16], [8, 7, 6, 5, 4, 3, 2, 1], "period at 0");
    assert_eq!(bytes[TASK + 32], 1 | 1 << 5, "flags at 32: period and plugin are declared");
    assert_eq!(bytes[TASK + 48..TASK + 51], *b"rm\0", "plugin at 48");
    assert_eq!(bytes[TASK + 80 + 8], 2, "CPU 65 is bit 1 of word 1");
    assert_eq!(bytes.len(), 8 + 208);
}

#[test]
fn the_longest_messages_fit() {
    let group = Request::CreateGroup(vec![Task::default(); GROUP_MAX]);
    assert!(bytes_of(&group).len() <= MESSAGE_MAX);
    assert_eq!(
        PLUGINS_MAX, 32,
        "an explanation holds 2 answers a plugin; see the assertion in wire/reply"
    );
}

#[test]
fn retif_w9_a_priority_that_does_not_fit_is_refused_instead_of_truncated() {
    let mut task = Task::default();
    task.params.priority = Some(talea_core::Priority(50));
    refused(&Request::Create(task), Field::Priority, |bytes| bytes[TASK + 37] = 1);
}

#[test]
fn undeclared_fields_must_be_zero() {
    let empty = Request::Create(Task::default());
    for (offset, field) in [
        (0, Field::Period),
        (8, Field::Runtime),
        (16, Field::Desired),
        (24, Field::Deadline),
        (36, Field::Priority),
        (44, Field::Thread),
        (48, Field::Plugin),
    ] {
        refused(&empty, field, |bytes| bytes[TASK + offset] = 1);
    }
}

#[test]
fn unknown_bits_and_numbers_are_refused() {
    let empty = Request::Create(Task::default());
    refused(&empty, Field::Request, |bytes| bytes[TASK + 33] = 16);
    // A thread id, or the own process, without a thread.
    refused(&empty, Field::Thread, |bytes| bytes[TASK + 33] = 2);
    refused(&empty, Field::Thread, |bytes| bytes[TASK + 33] = 4);
    refused(&empty, Field::Owner, |bytes| bytes[TASK + 40] = 3);
    refused(&empty, Field::Message, |bytes| bytes[0] = 17);
    refused(&Request::Stop { release: true }, Field::Request, |bytes| bytes[8] = 2);
}

#[test]
fn names_are_one_to_31_bytes_of_text_and_then_zeros() {
    let named = Request::Create(Task { plugin: Name::new("rm"), ..Task::default() });
    let plugin = TASK + 48;
    refused(&named, Field::Plugin, |bytes| bytes[plugin] = 0);
    refused(&named, Field::Plugin, |bytes| bytes[plugin + 31] = b'x');
    refused(&named, Field::Plugin, |bytes| bytes[plugin..plugin + 32].fill(b'x'));
    refused(&named, Field::Plugin, |bytes| bytes[plugin] = 0xff);
}

#[test]
fn retif_d6_a_message_of_another_length_is_refused() {
    for request in [
        Request::Create(Task::default()),
        Request::CreateGroup(vec![Task::default(); 3]),
        Request::Release(SpecId(1)),
        Request::Status,
        Request::Counters,
        Request::Attach { spec: SpecId(1), thread: ThreadRef::Pidfd },
    ] {
        let whole = bytes_of(&request);
        for len in 0..whole.len() {
            let garbled =
                decode_request(&whole[..len]).expect_err("a truncated message was decoded");
            assert_eq!(garbled.refusal.code, Code::Malformed);
            assert_eq!(
                garbled.seq,
                if len < 8 { 0 } else { 7 },
                "the number is reported if it is present"
            );
        }
        let mut longer = whole;
        longer.push(0);
        assert_eq!(decode_request(&longer).expect_err("too long").refusal.field, Field::Message);
    }
}

#[test]
fn retif_s4_thread_number_zero_is_refused() {
    let attach = |thread| Request::Attach { spec: SpecId(1), thread };
    let (flags, tid) = (8 + 8, 8 + 12);
    refused(&attach(ThreadRef::Tid(5)), Field::Thread, |bytes| bytes[tid] = 0);
    refused(&attach(ThreadRef::OwnTid(5)), Field::Thread, |bytes| bytes[tid] = 0);
    refused(&attach(ThreadRef::Pidfd), Field::Thread, |bytes| bytes[tid] = 5);
    // The own-thread flag is invalid without an id.
    refused(&attach(ThreadRef::Pidfd), Field::Thread, |bytes| bytes[flags] = 2);
}

#[test]
fn groups_have_between_one_and_64_tasks_and_a_bad_one_is_named() {
    let group = Request::CreateGroup(vec![Task::default(); 2]);
    refused(&group, Field::Group, |bytes| bytes[8] = 0);
    refused(&group, Field::Group, |bytes| bytes[8] = 65);
    refused(&group, Field::Group, |bytes| bytes[8..12].fill(0xff));
    refused(&group, Field::Message, |bytes| bytes[8] = 3);
    let mut bytes = bytes_of(&group);
    bytes[16 + 208 + 40] = 9;
    let refusal = decode_request(&bytes).expect_err("a bad owner").refusal;
    assert_eq!((refusal.field, refusal.index), (Field::Owner, 1));
}

#[test]
fn another_version_is_refused_as_such_but_hello_is_always_decoded() {
    let mut create = bytes_of(&Request::Create(Task::default()));
    create[2] = 9;
    let garbled = decode_request(&create).expect_err("version 9");
    assert_eq!(
        (garbled.refusal.code, garbled.refusal.asked, garbled.refusal.limit),
        (Code::Version, 9, u64::from(VERSION))
    );
    let hello = Request::Hello { min: 9, max: 12 };
    let mut bytes = bytes_of(&hello);
    bytes[2] = 12;
    assert_eq!(decode_request(&bytes), Ok((7, hello)));
}

#[test]
fn a_reflected_message_is_not_decoded() {
    let mut buffer = [0; 64];
    let len = Reply::Done.encode(1, &mut buffer);
    assert!(decode_request(&buffer[..len]).is_err());
    let len = Request::Status.encode(1, &mut buffer);
    assert!(decode_reply(&buffer[..len]).is_err());
    assert_eq!(request_op::STOP & 0x8000, 0);
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..1024)) {
        fuzz_wire(&bytes);
    }

    #[test]
    fn random_bodies_of_known_operations_never_panic(
        op in 0..20_u16,
        reply in any::<bool>(),
        body in vec(prop_oneof![9 => Just(0_u8), 1 => any::<u8>()], 0..1024)
    ) {
        let mut bytes = (op | if reply { 0x8000 } else { 0 }).to_le_bytes().to_vec();
        bytes.extend([1, 0, 0, 0, 0, 0]);
        bytes.extend(body);
        fuzz_wire(&bytes);
    }

    #[test]
    fn mutated_requests_never_panic_and_have_one_encoding(
        request in request(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>()
    ) {
        let mut bytes = bytes_of(&request);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        fuzz_wire(&bytes);
        fuzz_wire(&bytes[..cut.index(bytes.len())]);
    }

    #[test]
    fn mutated_replies_never_panic_and_have_one_encoding(
        reply in reply(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>()
    ) {
        let mut bytes = vec![0; MESSAGE_MAX];
        let len = reply.encode(1, &mut bytes);
        bytes.truncate(len);
        for (at, value) in changes {
            let at = at.index(len);
            bytes[at] = value;
        }
        fuzz_wire(&bytes);
        fuzz_wire(&bytes[..cut.index(len)]);
    }
}
