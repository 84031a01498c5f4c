// Load on a server from k6, in an open loop: requests arrive at RATE per second, whether or not earlier ones were
// answered.
//
//   k6 run -e ADDRESS=127.0.0.1:50051 -e RATE=2 -e SECONDS=20 -e DEADLINE=3s benches/load/k6.js
//
// Reflection gives the messages, so no proto file is needed. TOKEN is sent as a bearer token; TLS=1 uses TLS.

import grpc from 'k6/net/grpc';
import exec from 'k6/execution';
import { check } from 'k6';
import { Counter, Trend } from 'k6/metrics';

const address = __ENV.ADDRESS || '127.0.0.1:50051';
const answered = new Counter('rerankd_answered');
const refused = new Counter('rerankd_refused');
const late = new Counter('rerankd_deadline_exceeded');
const seconds = new Trend('rerankd_answered_seconds');

export const options = {
  scenarios: {
    open: {
      executor: 'constant-arrival-rate',
      rate: Number(__ENV.RATE || 2),
      timeUnit: '1s',
      duration: `${__ENV.SECONDS || 20}s`,
      preAllocatedVUs: Number(__ENV.CALLERS || 50),
    },
  },
  thresholds: {
    // Refusals and passed deadlines are answers of a loaded server; anything else is a fault.
    checks: ['rate==1'],
  },
};

const client = new grpc.Client();
let connected = false;

const subjects = ['looms', 'rye flour', 'the station', 'signal lamps', 'the weir', 'the harbour', 'copper'];

function passages(number) {
  const text = (index) =>
    `Report ${number}-${index} on ${subjects[index % subjects.length]}. The looms of Harrowgate were driven by water from the River Senn, ` +
    'led over a weir above the town. The station closed and houses a museum.';
  return [0, 1, 2].map((index) => ({ id: `${index}`, text: text(index) }));
}

export default function () {
  if (!connected) {
    client.connect(address, { plaintext: !__ENV.TLS, reflect: true });
    connected = true;
  }
  const number = exec.scenario.iterationInTest;
  const metadata = __ENV.TOKEN ? { authorization: `Bearer ${__ENV.TOKEN}` } : {};
  const began = Date.now();
  const answer = client.invoke(
    'rerankd.v1.RerankService/Rerank',
    { query: `Which river drove the looms in year ${number}?`, passages: passages(number) },
    { timeout: __ENV.DEADLINE || '3s', metadata },
  );
  if (answer.status === grpc.StatusOK) {
    answered.add(1);
    seconds.add((Date.now() - began) / 1000);
  } else if (answer.status === grpc.StatusResourceExhausted) {
    refused.add(1);
  } else if (answer.status === grpc.StatusDeadlineExceeded) {
    late.add(1);
  }
  const expected = [grpc.StatusOK, grpc.StatusResourceExhausted, grpc.StatusDeadlineExceeded];
  check(answer, { 'answered, refused or too late': () => expected.includes(answer.status) });
}
