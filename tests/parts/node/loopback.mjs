// Loaded before a server that is not ours (`node --import ./loopback.mjs …`): whatever address it
// asks for, it listens on a free port of the loopback interface and says which.
import { Server } from 'node:net';
import { announce, endWithStdin } from './announce.mjs';

const listen = Server.prototype.listen;
Server.prototype.listen = function listenOnLoopback(...wanted) {
  const told = wanted.filter((argument) => typeof argument === 'function');
  announce(this);
  return listen.call(this, 0, '127.0.0.1', ...told);
};
endWithStdin();
