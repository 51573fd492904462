// An Edge Node made with `sparkplug-client`: <server URL> <group> <edge node> <level of MQTT: 4 or 5>. Each line on standard input is something to do; each command that it receives is printed.
'use strict';
const client = require('sparkplug-client');
const [serverUrl, groupId, edgeNode, level] = process.argv.slice(2);
const now = () => Date.now();
const metric = (name, type, value, more) => ({ name, type, value, timestamp: now(), ...more });
// Numbers of 64 bits come as an object of the library `long`, which writes every digit.
const named = ({ name, value }) => [name, typeof value === 'object' && value !== null ? value.toString() : value ?? null];

const node = client.newClient({ serverUrl, groupId, edgeNode, username: '', password: '', clientId: `interop-${edgeNode}`, publishDeath: true, mqttOptions: { protocolVersion: Number(level) } });

function births() {
    node.publishNodeBirth({
        timestamp: now(),
        metrics: [
            metric('Node Control/Rebirth', 'Boolean', false),
            metric('Temperature', 'Double', 21.5),
            metric('Count', 'UInt32', 4000000000),
            metric('Small', 'Int8', -5),
            metric('Long', 'Int64', -9007199254740991),
            metric('Byte', 'UInt8', 200),
            metric('Word', 'UInt16', 60000),
            metric('Wide', 'UInt64', 9007199254740991),
            metric('Text', 'String', 'Öfen, 炉'),
            metric('Nothing', 'String', null),
            metric('Since', 'DateTime', 1700000000123),
            metric('Guarded', 'Boolean', true, { properties: { Quality: { type: 'Int32', value: 192 }, Unit: { type: 'String', value: '°C' } } }),
        ],
    });
    node.publishDeviceBirth('Burner', { timestamp: now(), metrics: [metric('Flame', 'Boolean', true), metric('Power', 'Float', 0.5)] });
}

const orders = {
    data() {
        node.publishNodeData({ timestamp: now(), metrics: [metric('Temperature', 'Double', 22.25), metric('Small', 'Int8', -6)] });
        node.publishDeviceData('Burner', { timestamp: now(), metrics: [metric('Flame', 'Boolean', false)] });
    },
    many() {
        // Beyond the wrap of seq.
        for (let i = 0; i < 300; i++) node.publishNodeData({ timestamp: now(), metrics: [metric('Count', 'UInt32', i)] });
    },
    gone() {
        node.publishDeviceDeath('Burner', { timestamp: now() });
    },
    stop() {
        node.stop();
    },
};

node.on('birth', births);
node.on('ncmd', (payload) => {
    console.log(JSON.stringify({ ncmd: payload.metrics.map(named) }));
    if (payload.metrics.some(({ name, value }) => name === 'Node Control/Rebirth' && value === true)) births();
});
node.on('dcmd', (device, payload) => console.log(JSON.stringify({ dcmd: device, metrics: payload.metrics.map(named) })));
node.on('error', (error) => {
    console.error(error);
    process.exit(1);
});
require('readline').createInterface({ input: process.stdin }).on('line', (line) => orders[line]());
