//! Checks the header against the Rust side, by a C and a C++ compiler with every warning an error.

#[path = "../../talea-object/tests/header/mod.rs"]
mod header;

use header::{compile_c, compile_cpp};

/// C program that asserts the layout of `src/abi.rs` for the header.
const PROGRAM: &str = r#"
#include "talea_plugin.h"
#include <stddef.h>
#define AT(type, member, offset) _Static_assert(offsetof(struct type, member) == offset, #type "." #member)
_Static_assert(TALEA_PLUGIN_ABI == 2, "abi");
_Static_assert(TALEA_PLUGIN_IGNORE_ADMISSION == 1, "flag");
_Static_assert(TALEA_PLUGIN_NO == -1 && TALEA_PLUGIN_PARTIAL == 0 && TALEA_PLUGIN_OK == 1, "verdicts");
_Static_assert(TALEA_PLUGIN_FIFO == 1 && TALEA_PLUGIN_RR == 2 && TALEA_PLUGIN_DEADLINE == 3, "classes");
_Static_assert(TALEA_PLUGIN_REASON == 96, "reason");
_Static_assert(sizeof(struct talea_plugin_setup) == 192, "setup");
AT(talea_plugin_setup, sched_class, 160); AT(talea_plugin_setup, deadline_share, 168);
AT(talea_plugin_setup, period_min_ns, 176); AT(talea_plugin_setup, period_max_ns, 184);
AT(talea_plugin_setup, priority_low, 4); AT(talea_plugin_setup, priority_high, 8);
AT(talea_plugin_setup, cpus, 16); AT(talea_plugin_setup, name, 144); AT(talea_plugin_setup, argument, 152);
_Static_assert(sizeof(struct talea_plugin_task) == 304, "task");
AT(talea_plugin_task, preferred, 176);
AT(talea_plugin_task, flags, 4); AT(talea_plugin_task, period_ns, 8); AT(talea_plugin_task, runtime_ns, 16);
AT(talea_plugin_task, desired_ns, 24); AT(talea_plugin_task, deadline_ns, 32);
AT(talea_plugin_task, priority, 40); AT(talea_plugin_task, cpus, 48);
_Static_assert(sizeof(struct talea_plugin_place) == 264, "place");
AT(talea_plugin_place, runtime_ns, 16); AT(talea_plugin_place, deadline_ns, 24);
AT(talea_plugin_place, period_ns, 32); AT(talea_plugin_place, cpus, 40); AT(talea_plugin_place, reason, 168);
_Static_assert(sizeof(struct talea_plugin_rank) == 16, "rank");
AT(talea_plugin_rank, priority, 8);
AT(talea_plugin_place, cpu, 4); AT(talea_plugin_place, priority, 8);
_Static_assert(sizeof(struct talea_plugin) == 80, "plugin");
AT(talea_plugin, rank, 72);
AT(talea_plugin, init, 8); AT(talea_plugin, fini, 16); AT(talea_plugin, accept, 24);
AT(talea_plugin, change, 32); AT(talea_plugin, schedule, 40); AT(talea_plugin, release, 48);
AT(talea_plugin, attach, 56); AT(talea_plugin, detach, 64);
int main(void) { return 0; }
"#;

#[test]
fn r18_the_header_has_the_layout_that_the_host_reads() {
    compile_c("abi", PROGRAM);
}

#[test]
fn r18_the_header_is_also_cpp() {
    compile_cpp("talea_plugin.h");
}
