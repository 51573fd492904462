"""Commands an Edge Node with the client of `pysparkplug`: <host> <port> <group> <edge node>. Each line on standard input is the JSON of one NCMD: name, datatype and value of each metric."""

import json
import sys
import threading

import pysparkplug
from pysparkplug import DataType, Message, MessageType, Metric, NCmd, QoS, Topic

host, port, group, name = sys.argv[1:]
connected = threading.Event()
client = pysparkplug.Client()
client.connect(host, port=int(port), callback=lambda _: connected.set())
if not connected.wait(60):
    sys.exit("no connection")
topic = Topic(message_type=MessageType.NCMD, group_id=group, edge_node_id=name)
for line in sys.stdin:
    now = pysparkplug.get_current_timestamp()
    metrics = tuple(
        Metric(timestamp=now, name=metric, datatype=DataType[datatype], value=value)
        for metric, datatype, value in json.loads(line)
    )
    payload = NCmd(timestamp=now, metrics=metrics)
    client.publish(Message(topic=topic, payload=payload, qos=QoS.AT_MOST_ONCE, retain=False), include_dtypes=True)
