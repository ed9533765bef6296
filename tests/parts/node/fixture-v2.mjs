// The conformance suite's fixture on the TypeScript SDK v2: the modern era and nothing else.
//
//   node fixture-v2.mjs    over HTTP, on a free port of the loopback interface
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { toNodeHandler } from '@modelcontextprotocol/node';
import {
  CLIENT_CAPABILITIES_META_KEY,
  createMcpHandler,
  createRequestStateCodec,
  inputRequired,
  inputResponse,
  MissingRequiredClientCapabilityError,
  ProtocolError,
  Server,
} from '@modelcontextprotocol/server';
import { announce, endWithStdin } from './announce.mjs';
import * as fixture from './fixture.mjs';

const { says, text } = fixture;
const states = createRequestStateCodec({ key: randomBytes(32) });
const INVALID_PARAMS = -32602;

const form = (message, ...fields) => {
  const properties = Object.fromEntries(fields);
  const requestedSchema = { type: 'object', properties, required: Object.keys(properties) };
  return { method: 'elicitation/create', params: { mode: 'form', message, requestedSchema } };
};
const line = (name) => [name, { type: 'string' }];
const sampling = (asked, maxTokens) => {
  const messages = [{ role: 'user', content: text(asked) }];
  return { method: 'sampling/createMessage', params: { messages, maxTokens } };
};
const roots = { method: 'roots/list', params: {} };

// What a form was filled in with, if it was.
function filled(request, key, field) {
  const view = inputResponse(request.inputResponses, key);
  const value = view.kind === 'elicit' && view.action === 'accept' ? view.content?.[field] : undefined;
  return typeof value === 'string' || typeof value === 'boolean' ? value : undefined;
}

// Asks until `answer` has what it needs.
const untilGiven = (inputRequests, answer) => (given, { mcpReq }) =>
  answer(mcpReq) ?? inputRequired({ inputRequests });

// The same with a state of ours that comes back.
const untilConfirmed = (inputRequests, answer) => async (given, { mcpReq }) => {
  const came = mcpReq.requestState();
  const answered = came !== undefined && answer(mcpReq, came);
  return answered || inputRequired({ inputRequests, requestState: await states.mint({ round: 1 }) });
};

const name = { user_name: form('What is your name?', line('name')) };
const confirm = { confirm: form('Please confirm', ['ok', { type: 'boolean' }]) };
const everything = {
  ...name,
  greeting: sampling('Generate a greeting', 50),
  client_roots: roots,
};

const greets = (request) => {
  const given = filled(request, 'user_name', 'name');
  return given && says(text(`Hello, ${given}!`));
};
const confirms = (request) =>
  filled(request, 'confirm', 'ok') !== undefined && says(text('state-ok'));

async function rounds(given, { mcpReq }) {
  const { round = 0 } = mcpReq.requestState() ?? {};
  if (round === 2 && filled(mcpReq, 'step2', 'color')) return says(text('done'));
  if (round === 1 && filled(mcpReq, 'step1', 'name')) {
    const step2 = form('Step 2: What is your favorite color?', line('color'));
    return inputRequired({ inputRequests: { step2 }, requestState: await states.mint({ round: 2 }) });
  }
  const step1 = form('Step 1: What is your name?', line('name'));
  return inputRequired({ inputRequests: { step1 }, requestState: await states.mint({ round: 1 }) });
}

const declared = ({ mcpReq }) =>
  mcpReq.envelope?.[CLIENT_CAPABILITIES_META_KEY] ?? mcpReq._meta?.[CLIENT_CAPABILITIES_META_KEY] ?? {};

const tools = fixture.toolbox({
  test_tool_with_progress: (given, { mcpReq }) =>
    fixture.progress(mcpReq._meta?.progressToken, (notice) => mcpReq.notify(notice)),
  async test_logging_tool(given, { mcpReq }) {
    await mcpReq.log('info', 'a line');
    return says(text('logged'));
  },
  test_missing_capability(given, context) {
    if (declared(context).sampling) return says(text('declared'));
    throw new MissingRequiredClientCapabilityError({ requiredCapabilities: { sampling: {} } });
  },
  test_streaming_elicitation: untilGiven(name, greets),
  test_trigger_tool_change() {
    handler.notify.toolsChanged();
    return says(text('changed'));
  },
  test_trigger_prompt_change() {
    handler.notify.promptsChanged();
    return says(text('changed'));
  },
  test_input_required_result_elicitation: untilGiven(name, greets),
  test_input_required_result_sampling: untilGiven(
    { capital_question: sampling('What is the capital of France?', 100) },
    (request) => {
      const view = inputResponse(request.inputResponses, 'capital_question');
      return view.kind === 'sampling' ? says(text(view.result.content.text)) : undefined;
    },
  ),
  test_input_required_result_list_roots: untilGiven({ client_roots: roots }, (request) => {
    const view = inputResponse(request.inputResponses, 'client_roots');
    return view.kind === 'roots' ? says(text(JSON.stringify(view.roots))) : undefined;
  }),
  test_input_required_result_request_state: untilConfirmed(confirm, confirms),
  test_input_required_result_tampered_state: untilConfirmed(confirm, confirms),
  test_input_required_result_multiple_inputs: untilConfirmed(everything, (request) => {
    const all = Object.keys(everything).every(
      (key) => inputResponse(request.inputResponses, key).kind !== 'missing',
    );
    return all && says(text('all given'));
  }),
  test_input_required_result_multi_round: rounds,
  test_input_required_result_capabilities(given, context) {
    const can = declared(context);
    const asks = { ...(can.elicitation && name), ...(can.sampling && { greeting: everything.greeting }) };
    return Object.keys(asks).length ? inputRequired({ inputRequests: asks }) : says(text('nothing to ask'));
  },
});

const asking = { name: 'test_input_required_result_prompt', description: 'A prompt that asks first' };
const context = { user_context: form('What context should the prompt use?', line('context')) };

function prompt({ name: wanted, arguments: given }, { mcpReq }) {
  if (wanted !== asking.name) return fixture.prompt(wanted, given);
  const said = filled(mcpReq, 'user_context', 'context');
  if (!said) return inputRequired({ inputRequests: context });
  return { messages: [{ role: 'user', content: text(`With this context: ${said}`) }] };
}

function known(found, what, data) {
  if (found === undefined) throw new ProtocolError(INVALID_PARAMS, what, data);
  return found;
}

function server() {
  const changes = { listChanged: true };
  const capabilities = { tools: changes, prompts: changes, resources: {}, logging: {}, completions: {} };
  const options = { capabilities, requestState: { verify: states.verify } };
  const one = new Server({ name: 'fixture-v2', version: '1.0.0' }, options);
  const on = (method, answer) => one.setRequestHandler(method, answer);
  on('tools/list', () => ({ tools: tools.list() }));
  on('tools/call', async ({ params }, given) =>
    known(await tools.call(params.name, params.arguments ?? {}, given), `Unknown tool: ${params.name}`));
  on('resources/list', () => ({ resources: fixture.resources }));
  on('resources/templates/list', () => ({ resourceTemplates: fixture.templates }));
  on('resources/read', ({ params: { uri } }) => known(fixture.read(uri), 'Resource not found', { uri }));
  on('prompts/list', () => ({ prompts: [...fixture.prompts, asking] }));
  on('prompts/get', ({ params }, given) => known(prompt(params, given), `Unknown prompt: ${params.name}`));
  on('completion/complete', () => fixture.completion);
  return one;
}

const handler = createMcpHandler(server, { legacy: 'reject' });
const answer = toNodeHandler(handler);
endWithStdin();
const listener = createServer((request, response) => {
  if (fixture.isFromHere(request.headers)) return answer(request, response);
  response.writeHead(403).end();
});
announce(listener.listen(0, '127.0.0.1'));
