//! Values that programs read over D-Bus: those of the name on the system bus, and those of the
//! portal on the bus of the session. `talea doctor` compares them.

use crate::interface::{BUS_NAME, OBJECT_PATH};
use std::time::Duration;
use zbus::connection::Builder;
use zbus::{OwnedVariant, Variant};

/// Time limit of one call.
const TIME_OUT: Duration = Duration::from_secs(2);
/// The properties, which the portal has, too.
const PROPERTIES: [&str; 3] = ["MaxRealtimePriority", "MinNiceLevel", "RTTimeUSecMax"];

/// An object with the properties.
struct Publisher {
    name: &'static str,
    path: &'static str,
    interface: &'static str,
}

const REALTIMEKIT: Publisher = Publisher { name: BUS_NAME, path: OBJECT_PATH, interface: BUS_NAME };
const PORTAL: Publisher = Publisher {
    name: "org.freedesktop.portal.Desktop",
    path: "/org/freedesktop/portal/desktop",
    interface: "org.freedesktop.portal.Realtime",
};

/// Returns a line for each publisher: its properties, `no-owner`, or why it cannot be asked.
pub(crate) async fn published() -> String {
    let realtimekit = REALTIMEKIT.line(Builder::system()).await;
    let portal = PORTAL.line(Builder::session()).await;
    format!("realtimekit {realtimekit}\nportal {portal}\n")
}

impl Publisher {
    async fn line(&self, bus: Builder<'_>) -> String {
        match self.read(bus).await {
            Ok(Some(values)) => values.join(" "),
            Ok(None) => "no-owner".to_owned(),
            Err(error) => error.to_string().replace('\n', " "),
        }
    }

    /// Reads the properties without starting the publisher; `None` if it does not run.
    async fn read(&self, bus: Builder<'_>) -> zbus::Result<Option<Vec<String>>> {
        let connection = bus.method_timeout(TIME_OUT).build().await?;
        let bus = "org.freedesktop.DBus";
        let path = "/org/freedesktop/DBus";
        let owned = connection.call_method(Some(bus), path, Some(bus), "NameHasOwner", &self.name);
        if !owned.await?.body().deserialize::<bool>()? {
            return Ok(None);
        }
        let mut values = Vec::new();
        for property in PROPERTIES {
            let of = Some("org.freedesktop.DBus.Properties");
            let body = (self.interface, property);
            let reply =
                connection.call_method(Some(self.name), self.path, of, "Get", &body).await?;
            let value: OwnedVariant = reply.body().deserialize()?;
            let number = match &*value {
                Variant::I32(number) => i64::from(*number),
                Variant::U32(number) => i64::from(*number),
                Variant::I64(number) => *number,
                other => return Err(zbus::Error::Failure(format!("{property} is {other:?}"))),
            };
            values.push(format!("{property}={number}"));
        }
        Ok(Some(values))
    }
}
