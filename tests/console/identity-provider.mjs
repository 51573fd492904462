// An identity provider of this machine: `oidc-provider` with its own pages for signing in and for consent. All users are in group `ops`.
import { once } from "node:events";
import http from "node:http";

/** A provider that has not been started, because it has to know where people come back to. */
export async function identityProvider() {
  process.env.DEBUG ??= "";
  const { Provider } = await import("oidc-provider");
  let server;
  return {
    /** Starts it for one client, and gives its issuer and the client's secret. */
    async start(redirect) {
      server = http.createServer();
      server.listen(0, "127.0.0.1");
      await once(server, "listening");
      const [issuer, secret] = [`http://127.0.0.1:${server.address().port}`, "a secret: of & this test"];
      const provider = new Provider(issuer, {
        clients: [{ client_id: "sparkfleet-console", client_secret: secret, redirect_uris: [redirect] }],
        claims: { openid: ["sub"], profile: ["groups"] },
        conformIdTokenClaims: false,
        findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id, groups: ["ops"] }) }),
        pkce: { required: () => true },
      });
      server.on("request", provider.callback());
      return { issuer, secret };
    },
    async stop() {
      server?.closeAllConnections();
      server?.close();
    },
  };
}
