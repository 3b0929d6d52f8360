//! Notifications to the service manager (`sd_notify(3)`).

use sd_notify::NotifyState;

/// Notifies the service manager, if there is one.
pub fn notify(state: &[NotifyState]) {
    // A failed notification does not affect the service.
    let _ = sd_notify::notify(state);
}
