//! Explanation in words of what the daemon granted, or why it refused.

use super::layout::RtfTask;
use super::registry;
use crate::ffi::{CallResult, protect};
use crate::message;
use libc::{c_char, size_t};
use std::fmt::Write;
use talea_client::{Mechanism, SpecInfo};
use talea_core::Span;

/// Writes the explanation of a task, or of the last error, to `text`. Returns the length of the
/// explanation.
///
/// # Safety
/// `task` is NULL or the caller's structure, and `text` is NULL or has room for `size` bytes.
pub(super) unsafe fn explain(task: *const RtfTask, text: *mut c_char, size: size_t) -> size_t {
    // SAFETY: the caller's promise.
    let id = unsafe { task.as_ref() }.map_or(0, |task| task.task_id);
    let words = protect(|| about(id)).unwrap_or_else(|_| message::text());
    if !text.is_null() && size > 0 {
        let len = words.len().min(size - 1);
        // SAFETY: `len` and its end fit.
        unsafe {
            std::ptr::copy_nonoverlapping(words.as_ptr().cast::<c_char>(), text, len);
            *text.add(len) = 0;
        }
    }
    words.len()
}

/// Returns a sentence about an accepted task, or an error for any other task.
fn about(id: u32) -> CallResult<String> {
    let entry = registry::find(id)?;
    Ok(sentence(&entry.grant.info()??))
}

fn sentence(info: &SpecInfo) -> String {
    let granted = &info.granted;
    let mut text = format!("Granted by plugin {}", info.plugin_name);
    let _ = match granted.cpu {
        Some(cpu) => write!(text, " on CPU {cpu}"),
        None => write!(text, " over a whole domain"),
    };
    let _ = match granted.mechanism {
        Mechanism::Fifo => write!(text, " with SCHED_FIFO at priority {}", granted.priority),
        Mechanism::Rr => write!(text, " with SCHED_RR at priority {}", granted.priority),
        Mechanism::DeadlinePinned | Mechanism::DeadlineGlobal => {
            write!(text, " with SCHED_DEADLINE")
        }
    };
    if let Some(runtime) = granted.runtime {
        let _ = write!(text, ", runtime {}", Span::from_ns(runtime.as_ns()));
    }
    if let Some(period) = info.task.params.period {
        let _ = write!(text, " every {period}");
    }
    text.push('.');
    let notes: Vec<_> = granted.notes.stable_names().collect();
    if !notes.is_empty() {
        let _ = write!(text, " Notes: {}.", notes.join(", "));
    }
    text
}
