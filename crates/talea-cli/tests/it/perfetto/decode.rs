//! Strict decoder of a trace: unknown fields, wrong types and repeated fields are errors.
//!
//! The schema is read from `subset.proto`, so the decoder shares nothing with the writer.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A field of a message.
#[derive(Clone, Debug)]
struct Field {
    name: String,
    kind: String,
    repeated: bool,
}

/// Messages by name, and the values of enumerations.
pub(super) struct Schema {
    messages: BTreeMap<String, BTreeMap<u64, Field>>,
    enums: BTreeMap<String, BTreeMap<u64, String>>,
}

impl Schema {
    /// Reads a file with one declaration per line and full type names.
    pub(super) fn read(text: &str) -> Schema {
        let mut schema = Schema { messages: BTreeMap::new(), enums: BTreeMap::new() };
        let mut open: Vec<(bool, String)> = Vec::new();
        for line in
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"))
        {
            let words: Vec<&str> = line.trim_end_matches(';').split_whitespace().collect();
            let full = |name: &str| {
                open.last().map_or(name.to_owned(), |(_, above)| format!("{above}.{name}"))
            };
            match words[..] {
                ["syntax" | "package", ..] => {}
                ["message", name, "{"] => {
                    let name = full(name);
                    schema.messages.insert(name.clone(), BTreeMap::new());
                    open.push((true, name));
                }
                ["enum", name, "{"] => {
                    let name = full(name);
                    schema.enums.insert(name.clone(), BTreeMap::new());
                    open.push((false, name));
                }
                ["}"] => _ = open.pop().expect("something to close"),
                [label @ ("optional" | "repeated"), kind, name, "=", number] => {
                    let (_, message) = open.last().expect("a message");
                    let field = Field {
                        name: name.to_owned(),
                        kind: kind.to_owned(),
                        repeated: label == "repeated",
                    };
                    let fields = schema.messages.get_mut(message).expect("a message");
                    fields.insert(number.parse().expect("a number"), field);
                }
                [name, "=", number] => {
                    let (_, list) = open.last().expect("an enumeration");
                    let values = schema.enums.get_mut(list).expect("an enumeration");
                    values.insert(number.parse().expect("a number"), name.to_owned());
                }
                _ => panic!("{line:?} is no line of a schema"),
            }
        }
        schema
    }

    /// Decodes the message `kind` from `bytes`, by names.
    pub(super) fn decode(&self, kind: &str, mut bytes: &[u8]) -> Result<Value, String> {
        let fields = self.messages.get(kind).ok_or_else(|| format!("no message {kind}"))?;
        let mut seen = Map::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes)?;
            let (number, wire) = (key >> 3, key & 7);
            let field =
                fields.get(&number).ok_or_else(|| format!("{kind} has no field {number}"))?;
            let wrong = || format!("{kind}.{} has wire type {wire}", field.name);
            let value = if wire == 0 {
                let value = varint(&mut bytes)?;
                match field.kind.as_str() {
                    "uint64" => json!(value),
                    "uint32" => json!(u32::try_from(value).map_err(|_| wrong())?),
                    "int32" => json!(i32::try_from(value.cast_signed()).map_err(|_| wrong())?),
                    "int64" => json!(value.cast_signed()),
                    "bool" if value < 2 => json!(value == 1),
                    name => {
                        let values = self.enums.get(name).ok_or_else(wrong)?;
                        json!(
                            values
                                .get(&value)
                                .ok_or_else(|| format!("{name} has no value {value}"))?
                        )
                    }
                }
            } else if wire == 2 {
                let length = varint(&mut bytes)? as usize;
                let (inside, rest) =
                    bytes.split_at_checked(length).ok_or("a length beyond the end")?;
                bytes = rest;
                if field.kind == "string" {
                    json!(std::str::from_utf8(inside).map_err(|_| "no UTF-8")?)
                } else if self.messages.contains_key(&field.kind) {
                    self.decode(&field.kind, inside)?
                } else {
                    return Err(wrong());
                }
            } else {
                return Err(wrong());
            };
            if field.repeated {
                let list = seen.entry(&field.name).or_insert_with(|| json!([]));
                list.as_array_mut().expect("a list").push(value);
            } else if seen.insert(field.name.clone(), value).is_some() {
                return Err(format!("{kind}.{} is there twice", field.name));
            }
        }
        Ok(Value::Object(seen))
    }
}

fn varint(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or("a number beyond the end")?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f).checked_shl(shift).ok_or("a number that is too large")?;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err("a number that is too long".to_owned())
}

#[test]
fn the_decoder_refuses_what_the_schema_does_not_say() {
    let schema = Schema::read(include_str!("subset.proto"));
    let decode = |bytes: &[u8]| schema.decode("TracePacket", bytes);
    assert_eq!(decode(&[0x40, 0x96, 0x01]).expect("a time"), json!({ "timestamp": 150 }));
    let wrong: [(&[u8], &str); 7] = [
        (&[0x48, 1], "no field 9"),
        (&[0x42, 0], "wire type 2"),
        (&[0x45, 0, 0, 0, 0], "wire type 5"),
        (&[0x40, 1, 0x40, 1], "twice"),
        (&[0x40, 0x80], "beyond the end"),
        (&[0x5a, 4, 0x48], "beyond the end"),
        (&[0x5a, 2, 0x48, 9], "no value 9"),
    ];
    for (bytes, why) in wrong {
        let said = decode(bytes).expect_err(why);
        assert!(said.contains(why), "{said}");
    }
}
