//! Checks the header against the Rust side, by a C and a C++ compiler with every warning an error.

mod header;

use header::{compile_c, compile_cpp};

/// C program that asserts the layout of `src/abi.rs` for the header.
const PROGRAM: &str = r#"
#include "talea_sched.h"
#include <stddef.h>
#define AT(type, member, offset) \
    _Static_assert(offsetof(struct type, member) == offset, #type "." #member)
_Static_assert(TALEA_SCHED_ABI == 1 && TALEA_SCHED_KEEP == 0 && TALEA_SCHED_PICK == 1, "numbers");
_Static_assert(TALEA_SCHED_ENDS == 0 && TALEA_SCHED_ARRIVALS == 1, "phases");
_Static_assert(TALEA_SCHED_STARTS == 2 && TALEA_SCHED_NONE == -1, "numbers");
_Static_assert(TALEA_SCHED_NEVER == UINT64_MAX, "never");
_Static_assert(sizeof(struct talea_sched_criteria) == 40, "criteria");
AT(talea_sched_criteria, arrival_ns, 8); AT(talea_sched_criteria, period_ns, 16);
AT(talea_sched_criteria, relative_deadline_ns, 24); AT(talea_sched_criteria, priority, 32);
AT(talea_sched_criteria, criticality, 33); AT(talea_sched_criteria, yields, 34);
_Static_assert(sizeof(struct talea_sched_child) == 56, "child");
AT(talea_sched_child, job, 4); AT(talea_sched_child, ready_seq, 8);
AT(talea_sched_child, criteria, 16);
_Static_assert(sizeof(struct talea_sched_info) == 64, "info");
AT(talea_sched_info, has_cost, 4); AT(talea_sched_info, cost_ns, 8);
AT(talea_sched_info, name, 16); AT(talea_sched_info, criteria, 24);
_Static_assert(sizeof(struct talea_sched_policy) == 112, "policy");
AT(talea_sched_policy, name, 8); AT(talea_sched_policy, create, 16);
AT(talea_sched_policy, destroy, 24); AT(talea_sched_policy, admit, 32);
AT(talea_sched_policy, ready, 40); AT(talea_sched_policy, finished, 48);
AT(talea_sched_policy, update, 56); AT(talea_sched_policy, head, 64);
AT(talea_sched_policy, before, 72); AT(talea_sched_policy, charge, 80);
AT(talea_sched_policy, allowance, 88); AT(talea_sched_policy, next_wakeup, 96);
AT(talea_sched_policy, wake, 104);
_Static_assert(sizeof(struct talea_sched_server) == 96, "server");
AT(talea_sched_server, name, 8); AT(talea_sched_server, create, 16);
AT(talea_sched_server, destroy, 24); AT(talea_sched_server, wake, 32);
AT(talea_sched_server, idle, 40); AT(talea_sched_server, charge, 48);
AT(talea_sched_server, exhausted, 56); AT(talea_sched_server, refill, 64);
AT(talea_sched_server, budget, 72); AT(talea_sched_server, next_refill, 80);
AT(talea_sched_server, deadline, 88);
_Static_assert(sizeof(struct talea_sched_object) == 24, "object");
AT(talea_sched_object, abi, 4); AT(talea_sched_object, policies, 8);
AT(talea_sched_object, servers, 16);
int main(void) { return 0; }
"#;

#[test]
fn l8_the_header_has_the_layout_that_the_loader_reads() {
    compile_c("sched_abi", PROGRAM);
}

#[test]
fn l8_the_header_is_also_cpp() {
    compile_cpp("talea_sched.h");
}
