//! Names of users, for tables and records.

use std::collections::BTreeMap;

/// Cache of user names.
#[derive(Default)]
pub(crate) struct UserNames(BTreeMap<u32, String>);

impl UserNames {
    /// Returns the user's name, or the user's number if there is no name.
    pub(crate) fn name(&mut self, uid: u32) -> String {
        let look_up = || match talea_os::users::user_by_id(uid) {
            Ok(Some(user)) => user.name,
            _ => uid.to_string(),
        };
        self.0.entry(uid).or_insert_with(look_up).clone()
    }
}
