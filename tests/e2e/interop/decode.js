// Reads recorded messages from standard input, one JSON object a line ({topic, payload: base64}), and prints what `sparkplug-payload` makes of each.
'use strict';
const { get } = require('sparkplug-payload');
const codec = get('spBv1.0');

function text(value) {
    if (value === null || value === undefined) return null;
    if (value instanceof Uint8Array) return Buffer.from(value).toString('hex');
    // A DataSet, by column.
    if (Array.isArray(value.columns) && Array.isArray(value.rows)) {
        return JSON.stringify(Object.fromEntries(value.columns.map((name, at) => [name, value.rows.map((row) => text(row[at]))])));
    }
    // Numbers of 64 bits come as an object of the library `long`.
    return typeof value === 'object' ? value.toString() : String(value);
}

function described(metric) {
    const properties = Object.entries(metric.properties ?? {}).map(([key, property]) => [key, text(property.value)]);
    return {
        name: metric.name,
        type: metric.type,
        value: text(metric.value),
        timestamp: text(metric.timestamp),
        properties: Object.fromEntries(properties),
    };
}

require('readline').createInterface({ input: process.stdin }).on('line', (line) => {
    const { topic, payload } = JSON.parse(line);
    const decoded = codec.decodePayload(Buffer.from(payload, 'base64'));
    const { timestamp, seq, uuid } = decoded;
    const metrics = (decoded.metrics ?? []).map(described);
    console.log(JSON.stringify({ topic, timestamp: text(timestamp), seq: text(seq), uuid: uuid ?? null, metrics }));
});
