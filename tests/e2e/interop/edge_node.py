"""An Edge Node made with `pysparkplug`: <host> <port> <group> <edge node>. Each line on standard input is something to do; each command that it receives is printed."""

import json
import sys

import pysparkplug
from pysparkplug import DataType, Metric

host, port, group, name = sys.argv[1:]


def metric(name, datatype, value, is_null=False):
    return Metric(timestamp=pysparkplug.get_current_timestamp(), name=name, datatype=datatype, value=value, is_null=is_null)


def print_command(kind):
    def print_it(_, message):
        metrics = [[metric.name, metric.value] for metric in message.payload.metrics]
        print(json.dumps({kind: message.topic.device_id, "metrics": metrics}), flush=True)

    return print_it


node = pysparkplug.EdgeNode(
    group_id=group,
    edge_node_id=name,
    metrics=(
        metric("Node Control/Rebirth", DataType.BOOLEAN, False),
        metric("Temperature", DataType.DOUBLE, 21.5),
        metric("Count", DataType.UINT32, 4000000000),
        metric("Small", DataType.INT8, -5),
        metric("Long", DataType.INT64, -9007199254740991),
        metric("Text", DataType.STRING, "Öfen, 炉"),
        metric("Nothing", DataType.STRING, None, is_null=True),
        metric("Identity", DataType.UUID, "11ad7b32-1d32-4c4a-b0c9-fa049208939a"),
    ),
    cmd_callback=print_command("ncmd"),
)
burner = pysparkplug.Device(
    device_id="Burner",
    metrics=(metric("Flame", DataType.BOOLEAN, True), metric("Power", DataType.FLOAT, 0.5)),
    cmd_callback=print_command("dcmd"),
)
node.register(burner)
node.connect(host, port=int(port))

for line in sys.stdin:
    order = line.strip()
    if order == "data":
        node.update((metric("Temperature", DataType.DOUBLE, 22.25), metric("Small", DataType.INT8, -6)))
        node.update_device("Burner", (metric("Flame", DataType.BOOLEAN, False),))
    elif order == "many":
        for i in range(300):
            node.update((metric("Count", DataType.UINT32, i),))
    elif order == "gone":
        node.deregister("Burner")
