// Preloaded into servers that would listen on every interface, on a port of their own choice:
// makes them listen on loopback, on LOOPBACK_PORT or a free port, and print where.
import net from "node:net";

const { listen } = net.Server.prototype;

net.Server.prototype.listen = function (...args) {
  const callback = args.find((argument) => typeof argument === "function");
  this.once("listening", () => console.log(`ready at http://127.0.0.1:${this.address().port}`));
  return listen.call(this, { host: "127.0.0.1", port: Number(process.env.LOOPBACK_PORT ?? 0) }, callback);
};
