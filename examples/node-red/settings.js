// Node-RED without its editor: `node-red --userDir examples/node-red`. Leave the first two lines out to have it.
module.exports = {
    httpAdminRoot: false,
    httpNodeRoot: false,
    flowFile: 'flows.json',
    credentialSecret: false,
    functionExternalModules: true,
};
