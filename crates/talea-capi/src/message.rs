//! Message of a thread's last failed call.

use crate::ffi::{CallError, CallResult, protect, write};
use crate::layout::TaleaRefusal;
use libc::{c_char, c_int};
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::sync::LazyLock;
use talea_client::{Code, Field, Refusal};
use talea_core::Span;
use talea_proto::refusal::{PluginVerdict, Witness};

#[derive(Default)]
struct Last {
    text: CString,
    refusal: Option<Box<Refusal>>,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Runs the body of an exported function. Keeps the message of an error for `talea_last_error`.
pub(crate) fn call(inside: impl FnOnce() -> CallResult) -> c_int {
    match protect(inside) {
        Ok(()) => 0,
        Err(error) => {
            let number = error.number();
            remember(error);
            number
        }
    }
}

/// Keeps an error for the thread's next calls of `talea_last_error` and `talea_refusal_get`.
pub(crate) fn remember(error: CallError) {
    let text = message_of(&error);
    set(&text, if let CallError::Refused(refusal) = error { Some(refusal) } else { None });
}

/// Returns the message of an error, as a sentence.
pub(crate) fn message_of(error: &CallError) -> String {
    match error {
        CallError::Refused(refusal) => refusal.to_string(),
        CallError::Failed(failure) => failure.to_string(),
        CallError::Caller(errno, what) => {
            format!("{what} ({})", std::io::Error::from_raw_os_error(*errno))
        }
        CallError::Message(_, what) => what.clone(),
    }
}

/// Keeps a message, and its refusal if there is one.
pub(crate) fn set(text: &str, refusal: Option<Box<Refusal>>) {
    let text = CString::new(text.replace('\0', "?")).expect("zeros were replaced");
    // An ending thread has no thread-local storage and reads no message.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Last { text, refusal });
}

/// Returns the current message of the thread.
pub(crate) fn text() -> String {
    LAST.try_with(|last| last.borrow().text.to_string_lossy().into_owned()).unwrap_or_default()
}

#[unsafe(no_mangle)]
pub extern "C" fn talea_last_error() -> *const c_char {
    // The string does not move until the thread's next error.
    LAST.try_with(|last| last.borrow().text.as_ptr()).unwrap_or(c"".as_ptr())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn talea_refusal_get(refusal: *mut TaleaRefusal) -> c_int {
    let known = LAST.try_with(|last| last.borrow().refusal.clone()).ok().flatten();
    let Some(known) = known else { return -libc::ENOENT };
    // A mistake here must not replace the refusal that is asked for.
    match protect(|| {
        // SAFETY: as the header says.
        unsafe { write(refusal, &numbers(&known)) }
    }) {
        Ok(()) => 0,
        Err(error) => error.number(),
    }
}

/// Returns the numbers of a refusal, with the largest value that any plugin would accept and the
/// first witness.
fn numbers(refusal: &Refusal) -> TaleaRefusal {
    let offers = refusal.answers.iter().filter_map(|answer| match answer.verdict {
        PluginVerdict::No(no) if no.fits > 0 => Some((no.fits, no.field)),
        _ => None,
    });
    let (fits, fits_field) = offers.max_by_key(|(fits, _)| *fits).unwrap_or((0, Field::Request));
    let witness = refusal.answers.iter().find_map(|answer| match answer.verdict {
        PluginVerdict::No(no) => no.witness,
        _ => None,
    });
    let (witness, own, at, needs, has) = match witness {
        None => (0, false, 0, 0, 0),
        Some(Witness::DeadlineMiss { own, period, deadline, response }) => {
            (1, own, period.as_ns(), response.map_or(0, Span::as_ns), deadline.as_ns())
        }
        Some(Witness::Demand { at, demand, supply }) => {
            (2, false, at.as_ns(), demand.as_ns(), supply.as_ns())
        }
        Some(Witness::Held { free_in }) => (3, false, free_in.as_ns(), 0, 0),
    };
    TaleaRefusal {
        size: 0,
        code: refusal.code as i32,
        field: refusal.field as u32,
        kernel_errno: refusal.errno,
        asked: refusal.asked,
        limit: refusal.limit,
        fits,
        fits_field: fits_field as u32,
        index: refusal.index,
        witness,
        witness_own: own.into(),
        witness_at_ns: at,
        witness_needs_ns: needs,
        witness_has_ns: has,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn talea_result_name(result: c_int) -> *const c_char {
    word(result).as_ptr()
}

/// Names of the results of `talea-proto`, terminated by zeros.
static WORDS: LazyLock<[CString; Code::ALL.len()]> = LazyLock::new(|| {
    Code::ALL.map(|code| CString::new(code.stable_name()).expect("a word has no zeros"))
});

fn word(result: c_int) -> &'static CStr {
    let Ok(number) = u16::try_from(result) else { return c"failed" };
    match Code::ALL.iter().position(|code| *code as u16 == number) {
        Some(position) => &WORDS[position],
        None if number == 0 => c"ok",
        None => c"unknown",
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn talea_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r16_a_witness_is_returned_in_numbers() {
        use talea_core::Work;
        use talea_proto::message::Name;
        use talea_proto::refusal::{PluginAnswer, PluginText, Rejection, RejectionReason};
        let ns = Span::from_ns;
        let numbers = |witness| {
            let (asked, limit) = (2, 1);
            let no = Rejection {
                reason: RejectionReason::NoRoom,
                field: Field::Runtime,
                cpu: None,
                asked,
                limit,
                fits: 0,
                witness,
            };
            let name = Name::new("rm").expect("a name");
            let answers = vec![PluginAnswer {
                plugin: 0,
                name,
                verdict: PluginVerdict::No(no),
                text: PluginText::NONE,
            }];
            let code = Code::NoPlugin;
            let refusal = Refusal {
                code,
                field: Field::Request,
                asked: 0,
                limit: 0,
                errno: 0,
                index: 0,
                rule: None,
                answers,
            };
            let TaleaRefusal {
                witness,
                witness_own,
                witness_at_ns,
                witness_needs_ns,
                witness_has_ns,
                ..
            } = numbers(&refusal);
            (witness, witness_own, witness_at_ns, witness_needs_ns, witness_has_ns)
        };
        let late = |own, response| {
            Some(Witness::DeadlineMiss { own, period: ns(20), deadline: ns(15), response })
        };
        assert_eq!(numbers(None), (0, 0, 0, 0, 0));
        assert_eq!(numbers(late(true, Some(ns(17)))), (1, 1, 20, 17, 15));
        assert_eq!(numbers(late(false, None)), (1, 0, 20, 0, 15));
        let (demand, supply) = (Work::from_ns(9), Work::from_ns(8));
        assert_eq!(numbers(Some(Witness::Demand { at: ns(10), demand, supply })), (2, 0, 10, 9, 8));
    }

    #[test]
    fn words_are_those_of_the_protocol() {
        for code in Code::ALL {
            assert_eq!(word(c_int::from(code as u16)).to_str(), Ok(code.stable_name()));
        }
        assert_eq!((word(0), word(-5), word(999)), (c"ok", c"failed", c"unknown"));
    }
}
