// The same scenarios against separate processes on Mosquitto.
process.env.FACTORY = "site";
await import("./console.test.mjs");
