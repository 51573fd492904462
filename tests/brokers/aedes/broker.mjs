// aedes on a port of 127.0.0.1, without persistence: broker.mjs PORT
import { createServer } from "node:net";
import { Aedes } from "aedes";

const broker = await Aedes.createBroker();
createServer(broker.handle).listen(Number(process.argv[2]), "127.0.0.1", () => console.log("ready"));
