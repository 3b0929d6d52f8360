//! Room in the state file: a grant without a record is refused before it is made.

use super::stage::{Words, owned, timed, urgent, world};
use crate::input::{Errno, Input};
use talea_proto::{Code, Field, Owner, Request};

const ENOSPC: i32 = 28;

#[test]
fn attack_8_what_cannot_be_recorded_is_refused_with_the_kernels_error() {
    let mut world = world();
    let client = world.connect(1000);
    let tid = world.tid_of(client);
    let first = world.create(client, owned(urgent(5), Owner::Process));
    let room = world.broker.wanted_slots().expect("one of the slots for a group is used") - 64;
    assert_eq!(room, 1);
    world.faults.full_disk = 1000;
    let mut held = vec![first];
    let refusal = loop {
        match world.call(client, Request::Create(urgent(5))) {
            talea_proto::Reply::Granted(granted) => held.push(granted),
            talea_proto::Reply::Refused(refusal) => break refusal,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((refusal.code, refusal.field), (Code::NotRecorded, Field::Specs));
    assert_eq!(refusal.errno, ENOSPC);
    assert_eq!((refusal.asked, refusal.limit), (65, 64), "the slots of the first allocation");
    assert_eq!((held.len(), world.file.len()), (64, 64));
    // A slot that becomes free serves the next spec, but no group of two, of which none stays.
    world.done(client, Request::Release(held.remove(30).spec));
    let pair = vec![urgent(5), urgent(6)];
    let refusal = world.refused(client, Request::CreateGroup(pair.clone()));
    assert_eq!((refusal.code, refusal.index), (Code::NotRecorded, 1));
    assert_eq!((world.broker.specs(), world.file.len()), (63, 63));
    held.push(world.create(client, urgent(5)));
    // Specs with a slot are served as ever.
    assert_eq!(world.attach(client, first.spec, tid), talea_proto::Reply::Done);
    let change = Request::Change { spec: first.spec, task: timed(0, 10_000) };
    assert!(matches!(world.call(client, change), talea_proto::Reply::Granted(_)));
    world.check_idle(false);
    // With room on the disk, the next request is granted.
    world.faults.full_disk = 0;
    assert!(matches!(
        world.call(client, Request::CreateGroup(pair)),
        talea_proto::Reply::GrantedGroup(_)
    ));
}

#[test]
fn a_broker_whose_driver_reported_no_room_grants_nothing() {
    let mut world = world();
    let client = world.connect(1000);
    world.faults.full_disk = 1000;
    let refusal = world.refused(client, Request::Create(urgent(5)));
    assert_eq!((refusal.code, refusal.asked, refusal.limit), (Code::NotRecorded, 1, 0));
    world.handle_input(Input::RecordSlots { slots: 1, errno: Errno(ENOSPC) });
    assert_eq!(world.broker.wanted_slots(), Some(64));
}
