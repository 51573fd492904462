"""An Edge Node made with `mqtt-spb-wrapper`: <host> <port> <group> <edge node>. Each command that it receives is printed. It is born again when it is asked to.

Its births name metrics by folders of their own (`DATA/`, `CMD/`), its data do not, so it publishes none here.
"""

import json
import sys

from mqtt_spb_wrapper import MqttSpbEntityEdgeNode

host, port, group, name = sys.argv[1:]
# What the class does by itself for `Node Control/Rebirth` is a birth while it is made, before there is a connection.
node = MqttSpbEntityEdgeNode(group, name, include_spb_rebirth=False)
node.data.set_value("Temperature", 21.5)
node.data.set_value("Text", "Öfen, 炉")
node.data.set_value("On", True)
node.commands.set_value("Setpoint", 20.0)


def on_command(payload):
    metrics = [[metric["name"], metric["value"]] for metric in payload["metrics"]]
    print(json.dumps({"ncmd": metrics}), flush=True)
    if ["Node Control/Rebirth", True] in metrics:
        node.publish_birth()


node.on_command = on_command
if not node.connect(host, int(port), timeout=60):
    sys.exit("no connection")
node.publish_birth()
for line in sys.stdin:
    pass
