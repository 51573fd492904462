"""Reads recorded messages from standard input, one JSON object a line ({topic, payload: base64}), and prints what `pysparkplug` makes of each."""

import base64
import json
import sys

import pysparkplug

CLASSES = {
    "NBIRTH": pysparkplug.NBirth,
    "DBIRTH": pysparkplug.DBirth,
    "NDATA": pysparkplug.NData,
    "DDATA": pysparkplug.DData,
    "NDEATH": pysparkplug.NDeath,
    "DDEATH": pysparkplug.DDeath,
    "NCMD": pysparkplug.NCmd,
    "DCMD": pysparkplug.DCmd,
}


def text(value):
    if value is None:
        return None
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if isinstance(value, bool):
        return "true" if value else "false"
    if hasattr(value, "timestamp"):
        return str(round(value.timestamp() * 1000))
    return str(value)


births = {}
for line in sys.stdin:
    message = json.loads(line)
    _, group, kind, *node = message["topic"].split("/")
    place = (group, *node)
    try:
        payload = CLASSES[kind].decode(base64.b64decode(message["payload"]), birth=births.get(place))
    except NotImplementedError as error:
        print(json.dumps({"topic": message["topic"], "unread": str(error)}))
        continue
    if kind in ("NBIRTH", "DBIRTH"):
        births[place] = payload
    metrics = [payload.bd_seq_metric] if kind == "NDEATH" else getattr(payload, "metrics", ())
    described = [
        {"name": metric.name, "type": metric.datatype.name, "value": text(metric.value), "timestamp": text(metric.timestamp)}
        for metric in metrics
    ]
    seq = text(getattr(payload, "seq", None))
    print(json.dumps({"topic": message["topic"], "seq": seq, "metrics": described}))
