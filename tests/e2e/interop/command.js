// Commands an Edge Node with `sparkplug-payload`: <server URL> <group> <edge node> <level of MQTT: 4 or 5>. Each line on standard input is the JSON of the metrics of one NCMD.
'use strict';
const { connect } = require('mqtt');
const { get } = require('sparkplug-payload');
const [serverUrl, group, node, level] = process.argv.slice(2);
const client = connect(serverUrl, { clientId: `interop-command-${process.pid}`, protocolVersion: Number(level) });

client.on('connect', () => {
    require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
        const payload = get('spBv1.0').encodePayload({ timestamp: Date.now(), metrics: JSON.parse(line) });
        client.publish(`spBv1.0/${group}/NCMD/${node}`, Buffer.from(payload));
    });
});
client.on('error', (error) => {
    console.error(error);
    process.exit(1);
});
