"""Holds a trace, and the part of the schema that the tests read, against Perfetto's whole schema.

Usage: whole.py SUBSET TRACE. Needs the `perfetto` package.
"""
import re
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as published


def known(message, path):
    for field in UnknownFieldSet(message):
        raise SystemExit(f"{path}: field {field.field_number} is not in the schema")
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            values = value if hasattr(value, "__len__") else [value]
            for one in values:
                known(one, f"{path}.{field.name}")


def declared(path):
    above = []
    for line in open(path, encoding="utf-8"):
        opened = re.match(r"\s*(?:message|enum) (\w+) \{", line)
        field = re.match(r"\s*(?:optional|repeated) \S+ (\w+) = (\d+);", line)
        value = re.match(r"\s*([A-Z]\w+) = (\d+);", line)
        if opened:
            above.append(opened[1])
        elif line.strip() == "}":
            above.pop()
        elif field or value:
            yield list(above), (field or value)[1], int((field or value)[2])


for above, name, number in declared(sys.argv[1]):
    at = published
    for part in above:
        at = getattr(at, part)
    there = at.DESCRIPTOR.fields_by_name[name].number if hasattr(at, "ListFields") else at.Value(name)
    if there != number:
        raise SystemExit(f"{'.'.join(above)}.{name} is {there}, not {number}")

trace = published.Trace()
bytes_ = open(sys.argv[2], "rb").read()
trace.ParseFromString(bytes_)
known(trace, "Trace")
print(len(trace.packet), "packets")
