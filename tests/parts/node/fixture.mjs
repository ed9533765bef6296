// What the conformance suite asks a server for, in both eras: the names are the suite's. How a
// server says it is `fixture-v1.mjs` and `fixture-v2.mjs`.

export const PIXEL =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg==';
const SILENCE = 'UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=';

export const text = (said) => ({ type: 'text', text: said });
export const says = (...content) => ({ content });
export const later = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

const image = { type: 'image', data: PIXEL, mimeType: 'image/png' };
const resource = (uri, mimeType, said) => ({
  type: 'resource',
  resource: { uri, mimeType, text: said },
});

// Tools that need nothing but themselves.
const plain = {
  test_simple_text: () => says(text('This is a simple text response for testing.')),
  test_image_content: () => says(image),
  test_audio_content: () => says({ type: 'audio', data: SILENCE, mimeType: 'audio/wav' }),
  test_embedded_resource: () =>
    says(resource('test://embedded-resource', 'text/plain', 'This is an embedded resource content.')),
  test_multiple_content_types: () =>
    says(
      text('Multiple content types test:'),
      image,
      resource('test://mixed-content-resource', 'application/json', '{"test":"data","value":123}'),
    ),
  test_error_handling: () => ({
    ...says(text('This tool intentionally returns an error for testing')),
    isError: true,
  }),
  json_schema_2020_12_tool: () => says(text('called')),
};

// Everything that the newest JSON Schema has and an older reader might drop.
const wideSchema = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  $defs: {
    address: {
      $anchor: 'addressDef',
      type: 'object',
      properties: { street: { type: 'string' }, city: { type: 'string' } },
    },
  },
  properties: {
    name: { type: 'string' },
    address: { $ref: '#/$defs/address' },
    contactMethod: { type: 'string', enum: ['phone', 'email'] },
    phone: { type: 'string' },
    email: { type: 'string' },
  },
  allOf: [{ anyOf: [{ required: ['phone'] }, { required: ['email'] }] }],
  anyOf: [{ required: ['phone'] }, { required: ['email'] }],
  if: { properties: { contactMethod: { const: 'phone' } }, required: ['contactMethod'] },
  then: { required: ['phone'] },
  else: { required: ['email'] },
  additionalProperties: false,
};

// The tools of a server: these, and those of its era, given as name -> function.
export function toolbox(ofItsEra) {
  const tools = { ...plain, ...ofItsEra };
  return {
    list: () => Object.keys(tools).map(described),
    // `undefined` for a tool that there is not.
    call: (name, ...rest) => tools[name]?.(...rest),
  };
}

function described(name) {
  const inputSchema = name === 'json_schema_2020_12_tool' ? wideSchema : argumentsOf(name);
  return { name, description: `What the suite knows as ${name}`, inputSchema };
}

function argumentsOf(name) {
  const wanted = {
    test_sampling: { prompt: { type: 'string' } },
    test_elicitation: { message: { type: 'string' } },
  }[name];
  if (!wanted) return { type: 'object', properties: {} };
  return { type: 'object', properties: wanted, required: Object.keys(wanted) };
}

// The steps of a tool that tells how far it is.
export async function progress(token, notify) {
  for (const done of [0, 50, 100]) {
    if (token !== undefined) {
      const params = { progressToken: token, progress: done, total: 100 };
      await notify({ method: 'notifications/progress', params });
    }
    if (done < 100) await later(50);
  }
  return says(text('done'));
}

export const resources = [
  { uri: 'test://static-text', mimeType: 'text/plain' },
  { uri: 'test://static-binary', mimeType: 'image/png' },
  { uri: 'test://watched-resource', mimeType: 'text/plain' },
].map((one) => ({ ...one, name: one.uri.slice(7), description: `What stands at ${one.uri}` }));

export const templates = [
  {
    uriTemplate: 'test://template/{id}/data',
    name: 'template',
    description: 'Something for every id',
    mimeType: 'application/json',
  },
];

// The contents of a resource; `undefined` where there is none.
export function read(uri) {
  const of = (mimeType, rest) => ({ contents: [{ uri, mimeType, ...rest }] });
  if (uri === 'test://static-text')
    return of('text/plain', { text: 'This is the content of the static text resource.' });
  if (uri === 'test://static-binary') return of('image/png', { blob: PIXEL });
  if (uri === 'test://watched-resource') return of('text/plain', { text: 'Watched.' });
  const id = /^test:\/\/template\/([^/]+)\/data$/.exec(uri)?.[1];
  if (!id) return undefined;
  const data = { id, templateTest: true, data: `Data for ID: ${id}` };
  return of('application/json', { text: JSON.stringify(data) });
}

const asked = (name, description) => ({ name, description, required: true });

export const prompts = [
  { name: 'test_simple_prompt', description: 'A prompt without arguments' },
  {
    name: 'test_prompt_with_arguments',
    description: 'A prompt with two arguments',
    arguments: [asked('arg1', 'The first'), asked('arg2', 'The second')],
  },
  {
    name: 'test_prompt_with_embedded_resource',
    description: 'A prompt that carries a resource',
    arguments: [asked('resourceUri', 'What to carry')],
  },
  { name: 'test_prompt_with_image', description: 'A prompt with a picture' },
];

const user = (content) => ({ role: 'user', content });

// A prompt; `undefined` where there is none.
export function prompt(name, given = {}) {
  const of = (...contents) => ({ messages: contents.map(user) });
  switch (name) {
    case 'test_simple_prompt':
      return of(text('This is a simple prompt for testing.'));
    case 'test_prompt_with_arguments':
      return of(text(`Prompt with arguments: arg1='${given.arg1}', arg2='${given.arg2}'`));
    case 'test_prompt_with_embedded_resource':
      return of(
        resource(given.resourceUri, 'text/plain', 'Embedded resource content for testing.'),
        text('Please process the embedded resource above.'),
      );
    case 'test_prompt_with_image':
      return of(image, text('Please analyze the image above.'));
    default:
      return undefined;
  }
}

export const completion = { completion: { values: ['paris', 'park', 'party'], total: 3, hasMore: false } };

// Whether a request comes from this machine, under a name of this machine.
export function isFromHere({ host, origin }) {
  const ours = ['localhost', '127.0.0.1', '[::1]'];
  const names = (url) => URL.canParse(url) && ours.includes(new URL(url).hostname);
  return names(`http://${host}`) && (origin === undefined || names(origin));
}
