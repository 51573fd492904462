"""Reads recorded messages from standard input, one JSON object a line ({topic, payload: base64}), and prints what `mqtt-spb-wrapper` makes of each, without any birth."""

import base64
import json
import sys

from mqtt_spb_wrapper.spb_base import SpbPayloadParser
from mqtt_spb_wrapper.spb_protobuf import MetricDataType

NAMES = {number: name for name, number in vars(MetricDataType).items() if isinstance(number, int)}


def text(value):
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        # A DataSet, as it is in the payload; here by column.
        cells = [[next(iter(cell.values()), None) for cell in row["elements"]] for row in value.get("rows", ())]
        columns = {name: [row[at] for row in cells] for at, name in enumerate(value["columns"])}
        return json.dumps(columns, separators=(",", ":"), ensure_ascii=False)
    if isinstance(value, bool):
        return "true" if value else "false"
    if hasattr(value, "timestamp"):
        return str(round(value.timestamp() * 1000))
    return str(value)


for line in sys.stdin:
    message = json.loads(line)
    payload = SpbPayloadParser(base64.b64decode(message["payload"])).payload or {}
    metrics = [
        {
            "name": metric.get("name"),
            "type": NAMES.get(metric.get("datatype")),
            "value": text(metric.get("value")),
            "timestamp": metric.get("timestamp"),
        }
        for metric in payload.get("metrics", ())
    ]
    print(json.dumps({"topic": message["topic"], "seq": payload.get("seq"), "metrics": metrics}))
