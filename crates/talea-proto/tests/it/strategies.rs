//! Strategies for values of every kind that a message can contain.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use talea_core::{Attr, Charge, CpuSet, Params, Policy, Priority, Span, Work};
use talea_proto::counters::{CODES, RequestTimes};
use talea_proto::message::{
    Caveat, CpuInfo, DetachCause, Mechanism, Name, Notes, Overruns, PluginInfo, SessionInfo,
    SpecInfo, Status, Token,
};
use talea_proto::record::{DeadlineTerms, Record, RecordThread};
use talea_proto::refusal::{PLUGIN_TEXT_MAX, PluginText, PluginVerdict, RejectionReason, Witness};
use talea_proto::{
    Code, Counters, Field, GROUP_MAX, Granted, Owner, PLUGINS_MAX, PluginAnswer, Refusal,
    Rejection, Reply, Request, SpecId, Task, ThreadRef,
};

fn span() -> impl Strategy<Value = Span> {
    any::<u64>().prop_map(Span::from_ns)
}

fn work() -> impl Strategy<Value = Work> {
    any::<u64>().prop_map(Work::from_ns)
}

fn charge() -> impl Strategy<Value = Charge> {
    any::<u128>().prop_map(Charge::from_bits)
}

fn spec() -> impl Strategy<Value = SpecId> {
    any::<u64>().prop_map(SpecId)
}

fn token() -> impl Strategy<Value = Token> {
    any::<[u8; 16]>().prop_map(Token)
}

fn cpus() -> impl Strategy<Value = CpuSet> {
    any::<[u64; 16]>().prop_map(CpuSet::from_words)
}

fn notes() -> impl Strategy<Value = Notes> {
    any::<u32>().prop_map(Notes)
}

fn name() -> impl Strategy<Value = Name> {
    prop_oneof!["[a-z][a-z0-9-]{0,30}", "é{1,15}"]
        .prop_map(|text| Name::new(&text).expect("short enough"))
}

fn priority() -> impl Strategy<Value = Priority> {
    any::<u8>().prop_map(Priority)
}

fn params() -> impl Strategy<Value = Params> {
    (
        option::of(span()),
        option::of(work()),
        option::of(work()),
        option::of(span()),
        option::of(priority()),
    )
        .prop_map(|(period, runtime, desired, deadline, priority)| Params {
            period,
            runtime,
            desired,
            deadline,
            priority,
        })
}

pub(crate) fn task() -> impl Strategy<Value = Task> {
    let owner = prop_oneof![Just(Owner::Session), Just(Owner::Process), Just(Owner::Thread)];
    (params(), option::of(name()), cpus(), any::<bool>(), any::<bool>(), owner, option::of(named()))
        .prop_map(|(params, plugin, cpus, cpus_mandatory, ignore_admission, owner, thread)| Task {
            params,
            plugin,
            cpus,
            cpus_mandatory,
            ignore_admission,
            owner,
            thread,
            exclusive: ignore_admission,
        })
}

fn named() -> impl Strategy<Value = ThreadRef> {
    prop_oneof![
        Just(ThreadRef::Pidfd),
        (1..=u32::MAX).prop_map(ThreadRef::Tid),
        (1..=u32::MAX).prop_map(ThreadRef::OwnTid),
    ]
}

pub(crate) fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        any::<(u16, u16)>().prop_map(|(min, max)| Request::Hello { min, max }),
        task().prop_map(Request::Create),
        vec(task(), 1..=GROUP_MAX).prop_map(Request::CreateGroup),
        (spec(), task()).prop_map(|(spec, task)| Request::Change { spec, task }),
        spec().prop_map(Request::Release),
        (spec(), named()).prop_map(|(spec, thread)| Request::Attach { spec, thread }),
        spec().prop_map(Request::Detach),
        (-20_i8..=19, named()).prop_map(|(nice, thread)| Request::Nice { nice, thread }),
        spec().prop_map(Request::Query),
        (spec(), token()).prop_map(|(spec, token)| Request::Claim { spec, token }),
        token().prop_map(Request::Seed),
        any::<u32>().prop_map(|uid| Request::ActFor { uid }),
        task().prop_map(Request::Explain),
        Just(Request::Status),
        Just(Request::Counters),
        any::<u32>().prop_map(Request::Plugin),
        any::<(u32, u32)>().prop_map(|(plugin, index)| Request::PluginCpu { plugin, index }),
        spec().prop_map(Request::NextSpec),
        any::<u64>().prop_map(Request::NextSession),
        any::<bool>().prop_map(|release| Request::Stop { release }),
    ]
}

fn attr() -> impl Strategy<Value = Attr> {
    let policy = prop_oneof![
        any::<i8>().prop_map(|nice| Policy::Other { nice }),
        any::<i8>().prop_map(|nice| Policy::Batch { nice }),
        Just(Policy::Idle),
        priority().prop_map(Policy::Fifo),
        priority().prop_map(Policy::Rr),
        (work(), span(), span()).prop_map(|(runtime, deadline, period)| Policy::Deadline {
            runtime,
            deadline,
            period
        }),
    ];
    (policy, any::<bool>(), cpus()).prop_map(|(policy, reset_on_fork, cpus)| Attr {
        policy,
        reset_on_fork,
        cpus,
    })
}

fn granted() -> impl Strategy<Value = Granted> {
    (
        (spec(), token(), any::<u32>(), option::of(any::<u32>()), option::of(work())),
        (charge(), any::<u8>(), proptest::sample::select(&Mechanism::ALL[..]), span(), notes()),
    )
        .prop_map(
            |((spec, token, plugin, cpu, runtime), (charge, priority, mechanism, grain, notes))| {
                Granted {
                    spec,
                    token,
                    plugin,
                    cpu,
                    runtime,
                    charge,
                    priority,
                    mechanism,
                    granularity: grain,
                    notes,
                }
            },
        )
}

fn code() -> impl Strategy<Value = Code> {
    proptest::sample::select(&Code::ALL[..])
}

fn field() -> impl Strategy<Value = Field> {
    proptest::sample::select(&Field::ALL[..])
}

fn witness() -> impl Strategy<Value = Witness> {
    let span = || any::<u64>().prop_map(Span::from_ns);
    let work = || any::<u64>().prop_map(Work::from_ns);
    // A response time is never zero.
    let response = option::of((1u64..).prop_map(Span::from_ns));
    prop_oneof![
        (any::<bool>(), span(), span(), response).prop_map(|(own, period, deadline, response)| {
            Witness::DeadlineMiss { own, period, deadline, response }
        }),
        (span(), work(), work()).prop_map(|(at, demand, supply)| Witness::Demand {
            at,
            demand,
            supply
        }),
        span().prop_map(|free_in| Witness::Held { free_in }),
    ]
}

fn said() -> impl Strategy<Value = PluginVerdict> {
    let cpu = || option::of(any::<u32>());
    let no = (
        proptest::sample::select(&RejectionReason::ALL[..]),
        field(),
        cpu(),
        (any::<u64>(), any::<u64>(), any::<u64>()),
        option::of(witness()),
    );
    prop_oneof![
        (cpu(), charge(), notes()).prop_map(|(cpu, charge, notes)| PluginVerdict::Ok {
            cpu,
            charge,
            notes
        }),
        (cpu(), charge(), notes()).prop_map(|(cpu, charge, notes)| PluginVerdict::Partial {
            cpu,
            charge,
            notes
        }),
        no.prop_map(|(reason, field, cpu, (asked, limit, fits), witness)| PluginVerdict::No(
            Rejection { reason, field, cpu, asked, limit, fits, witness }
        )),
        (code(), field(), any::<u64>(), any::<u64>()).prop_map(|(code, field, asked, limit)| {
            PluginVerdict::Denied { code, field, asked, limit }
        }),
    ]
}

fn answer() -> impl Strategy<Value = PluginAnswer> {
    let text = any::<[u8; PLUGIN_TEXT_MAX]>();
    (any::<u32>(), name(), said(), text).prop_map(|(plugin, name, verdict, text)| PluginAnswer {
        plugin,
        name,
        verdict,
        text: PluginText::from_untrusted(&text),
    })
}

pub(crate) fn refusal() -> impl Strategy<Value = Refusal> {
    (
        (code(), field(), any::<u64>(), any::<u64>(), any::<i32>(), any::<u32>()),
        option::of("[a-z./:0-9é]{0,64}"),
        vec(answer(), 0..=PLUGINS_MAX),
    )
        .prop_map(|((code, field, asked, limit, errno, index), rule, answers)| Refusal {
            code,
            field,
            asked,
            limit,
            errno,
            index,
            rule,
            answers,
        })
}

fn spec_info() -> impl Strategy<Value = SpecInfo> {
    (
        granted(),
        task(),
        name(),
        any::<u32>(),
        any::<u32>(),
        option::of(any::<u32>()),
        option::of(attr()),
        (any::<(u64, u64, bool)>(), option::of(proptest::sample::select(&DetachCause::ALL[..]))),
    )
        .prop_map(|(granted, task, plugin_name, uid, pid, tid, attr, (overruns, detached))| {
            SpecInfo {
                granted,
                task,
                plugin_name,
                uid,
                pid,
                tid,
                attr,
                overruns: Overruns {
                    count: overruns.0,
                    last_ns: overruns.1,
                    is_throttled: overruns.2,
                },
                detached,
            }
        })
}

fn status() -> impl Strategy<Value = Status> {
    (any::<[u64; 5]>(), any::<[u32; 7]>()).prop_map(|(long, short)| Status {
        instance: long[0],
        uptime_ns: long[1],
        requests: long[2],
        refused: long[3],
        wakeups: long[4],
        pid: short[0],
        plugins: short[1],
        sessions: short[2],
        specs: short[3],
        attached: short[4],
        adopted: short[5],
        rules: short[6],
    })
}

fn counters() -> impl Strategy<Value = Counters> {
    (any::<[u64; 13]>(), any::<[u64; CODES]>(), any::<[u64; 12]>(), any::<u64>()).prop_map(
        |(events, refusals, counts, sum_ns)| Counters {
            grants: events[0],
            adoptions: events[1],
            claims: events[2],
            changes: events[3],
            releases: events[4],
            attaches: events[5],
            detaches: events[6],
            demotions: events[7],
            drifts: events[8],
            overruns: events[9],
            starvations: events[10],
            reloads: events[11],
            nice_changes: events[12],
            refusals,
            request_times: RequestTimes { counts, sum_ns },
        },
    )
}

fn plugin_info() -> impl Strategy<Value = PluginInfo> {
    (name(), name(), cpus(), any::<(u8, u8)>(), any::<(u32, u32)>(), any::<bool>()).prop_map(
        |(name, kind, cpus, band, (index, specs), out_of_service)| PluginInfo {
            index,
            name,
            kind,
            cpus,
            band,
            specs,
            out_of_service,
        },
    )
}

pub(crate) fn reply() -> impl Strategy<Value = Reply> {
    prop_oneof![
        any::<(u16, u64)>().prop_map(|(version, instance)| Reply::Welcome { version, instance }),
        granted().prop_map(Reply::Granted),
        vec(granted(), 1..=GROUP_MAX).prop_map(Reply::GrantedGroup),
        Just(Reply::Done),
        Just(Reply::DoneWithCaveat(Caveat::PendingWakeup)),
        Just(Reply::DoneWithCaveat(Caveat::AffinityWidened)),
        any::<i32>().prop_map(|errno| Reply::DoneWithCaveat(Caveat::PolicyLost { errno })),
        refusal().prop_map(|refusal| Reply::Refused(Box::new(refusal))),
        spec_info().prop_map(|info| Reply::Spec(Box::new(info))),
        (
            option::of(any::<u32>()),
            vec(answer(), 0..=PLUGINS_MAX),
            option::of(refusal().prop_map(Box::new))
        )
            .prop_map(|(chosen, answers, refusal)| Reply::Explained {
                chosen,
                answers,
                refusal
            }),
        status().prop_map(|status| Reply::Status(Box::new(status))),
        counters().prop_map(|counters| Reply::Counters(Box::new(counters))),
        plugin_info().prop_map(|info| Reply::Plugin(Box::new(info))),
        (any::<u32>(), any::<u32>(), charge(), charge()).prop_map(|(cpu, specs, free, used)| {
            Reply::PluginCpu(CpuInfo { cpu, free, used, specs })
        }),
        (any::<u64>(), any::<[u32; 3]>()).prop_map(|(session, [pid, uid, specs])| Reply::Session(
            SessionInfo { session, pid, uid, specs }
        )),
        Just(Reply::End),
    ]
}

pub(crate) fn record() -> impl Strategy<Value = Record> {
    let thread = (any::<u32>(), any::<u32>(), any::<u64>(), any::<u64>(), attr(), attr()).prop_map(
        |(tid, tgid, start, inode, previous, given)| RecordThread {
            tid,
            tgid,
            start,
            inode,
            previous,
            applied: given,
        },
    );
    (
        (spec(), token(), any::<u32>(), any::<u32>(), any::<u64>(), task()),
        (
            name(),
            option::of(any::<u32>()),
            option::of(work()),
            charge(),
            any::<u8>(),
            option::of(thread),
            option::of((span(), span())),
            any::<bool>(),
        ),
    )
        .prop_map(
            |(
                (spec, token, uid, pid, pid_start, task),
                (plugin, cpu, runtime, charge, priority, thread, terms, is_from_front_end),
            )| {
                Record {
                    spec,
                    token,
                    uid,
                    pid,
                    pid_start,
                    task,
                    plugin,
                    cpu,
                    runtime,
                    charge,
                    priority,
                    terms: terms.map(|(deadline, period)| DeadlineTerms { deadline, period }),
                    thread,
                    is_from_front_end,
                }
            },
        )
}
