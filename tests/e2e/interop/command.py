"""Commands an Edge Node with the SCADA application of `mqtt-spb-wrapper`: <host> <port> <group> <edge node>. Each line on standard input is the JSON of one NCMD: names and values."""

import json
import sys

from mqtt_spb_wrapper import MqttSpbEntityScada

host, port, group, name = sys.argv[1:]
application = MqttSpbEntityScada(group, "interop-scada")
if not application.connect(host, int(port), timeout=60):
    sys.exit("no connection")
for line in sys.stdin:
    if not application.send_commands(json.loads(line), name):
        sys.exit(f"not sent: {line}")
