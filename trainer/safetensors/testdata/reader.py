"""Reads and writes safetensors files from the format's definition, with
nothing but the standard library.

reader.py read FILE    prints what is in the file as JSON
reader.py write FILE   writes what is on standard input, as read printed it
"""
import json
import struct
import sys

CODES = {"F32": "f", "F64": "d", "I64": "q", "U64": "Q", "U8": "B"}


def once(pairs):
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key comes twice")
    return dict(pairs)


def read(path):
    with open(path, "rb") as f:
        content = f.read()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length].decode("utf-8"), object_pairs_hook=once)
    data = content[8 + length :]
    metadata = header.pop("__metadata__", {})
    tensors, covered = [], 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        if begin != covered:
            raise ValueError("%r begins at %d, not at %d" % (name, begin, covered))
        covered = end
        count = 1
        for dimension in entry["shape"]:
            count *= dimension
        values = struct.unpack("<%d%s" % (count, CODES[entry["dtype"]]), data[begin:end])
        tensors.append({"name": name, "dtype": entry["dtype"], "shape": entry["shape"], "values": values})
    if covered != len(data):
        raise ValueError("%d bytes, the tensors end at %d" % (len(data), covered))
    return {"aligned": length % 8 == 0, "metadata": metadata, "tensors": tensors}


def write(path, content):
    header, data = {}, b""
    for tensor in content["tensors"]:
        values = tensor["values"]
        packed = struct.pack("<%d%s" % (len(values), CODES[tensor["dtype"]]), *values)
        header[tensor["name"]] = {
            "data_offsets": [len(data), len(data) + len(packed)],
            "dtype": tensor["dtype"],
            "shape": tensor["shape"],
        }
        data += packed
    header["__metadata__"] = content["metadata"]
    text = json.dumps(header, sort_keys=True, indent=1).encode("utf-8")
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


if sys.argv[1] == "read":
    print(json.dumps(read(sys.argv[2])))
else:
    write(sys.argv[2], json.load(sys.stdin))
