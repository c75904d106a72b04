// MessagePack for the wire protocol: nil, bool, int, float, str, bin, array, map. Source: the msgpack specification.
// Extension types are refused, and so are nesting beyond MAX_DEPTH, map keys that are not strings, bad UTF-8 and bytes
// left over. A map's undefined fields are left out. Integers beyond 2^53 arrive as BigInt, so that none loses digits.

const MAX_DEPTH = 16; // the protocol nests 4 deep; a deeper message is not ours
const utf8Encoder = new TextEncoder();
const utf8Decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const FIRST_BUFFER_BYTES = 256; // most client messages fit

export class MsgpackError extends Error {}

/** Bytes of `value` (Uint8Array of its own). Throws MsgpackError for what has no place on the wire. */
export function encode(value) {
  const out = { bytes: new Uint8Array(FIRST_BUFFER_BYTES), view: null, length: 0 };
  out.view = new DataView(out.bytes.buffer);
  write(out, value, 0);
  return out.bytes.slice(0, out.length);
}

function room(out, n_bytes) {
  const at = out.length;
  if (at + n_bytes > out.bytes.length) {
    const grown = new Uint8Array(Math.max(out.bytes.length * 2, at + n_bytes));
    grown.set(out.bytes);
    out.bytes = grown;
    out.view = new DataView(grown.buffer);
  }
  out.length = at + n_bytes;
  return at;
}

function put(out, tag, size, setter, value) {
  const at = room(out, 1 + size);
  out.bytes[at] = tag;
  if (size) out.view[setter](at + 1, value);
}

function write(out, value, depth) {
  if (depth > MAX_DEPTH) throw new MsgpackError(`nested deeper than ${MAX_DEPTH}`);
  if (value === null || value === undefined) put(out, 0xc0, 0);
  else if (typeof value === "boolean") put(out, value ? 0xc3 : 0xc2, 0);
  else if (typeof value === "number" && !Number.isSafeInteger(value)) put(out, 0xcb, 8, "setFloat64", value);
  else if (typeof value === "number" || typeof value === "bigint") writeInteger(out, value);
  else if (typeof value === "string") writeBytes(out, utf8Encoder.encode(value), 0xd9, 32);
  else if (value instanceof ArrayBuffer) writeBytes(out, new Uint8Array(value), 0xc4, 0);
  else if (ArrayBuffer.isView(value)) writeBytes(out, new Uint8Array(value.buffer, value.byteOffset, value.byteLength), 0xc4, 0);
  else if (Array.isArray(value)) {
    writeCount(out, value.length, 0x90, 0xdc);
    for (const item of value) write(out, item, depth + 1);
  } else if (typeof value === "object") {
    const fields = Object.entries(value).filter(([, field]) => field !== undefined);
    writeCount(out, fields.length, 0x80, 0xde);
    for (const [key, field] of fields) {
      write(out, key, depth + 1);
      write(out, field, depth + 1);
    }
  } else throw new MsgpackError(`cannot encode a ${typeof value}`);
}

function writeInteger(out, value) {
  if (value >= 0) {
    if (value < 0x80) put(out, Number(value), 0);
    else if (value < 0x100) put(out, 0xcc, 1, "setUint8", Number(value));
    else if (value < 0x10000) put(out, 0xcd, 2, "setUint16", Number(value));
    else if (value < 0x100000000) put(out, 0xce, 4, "setUint32", Number(value));
    else if (BigInt(value) < 1n << 64n) put(out, 0xcf, 8, "setBigUint64", BigInt(value));
    else throw new MsgpackError("integer above 2^64 - 1");
  } else if (value >= -0x20) put(out, Number(value) & 0xff, 0);
  else if (value >= -0x80) put(out, 0xd0, 1, "setInt8", Number(value));
  else if (value >= -0x8000) put(out, 0xd1, 2, "setInt16", Number(value));
  else if (value >= -0x80000000) put(out, 0xd2, 4, "setInt32", Number(value));
  else if (BigInt(value) >= -(1n << 63n)) put(out, 0xd3, 8, "setBigInt64", BigInt(value));
  else throw new MsgpackError("integer below -2^63");
}

function writeBytes(out, bytes, tag, fixed) {
  const n = bytes.length;
  if (n < fixed) put(out, 0xa0 | n, 0);
  else if (n < 0x100) put(out, tag, 1, "setUint8", n);
  else if (n < 0x10000) put(out, tag + 1, 2, "setUint16", n);
  else put(out, tag + 2, 4, "setUint32", n);
  const at = room(out, n); // may replace out.bytes
  out.bytes.set(bytes, at);
}

function writeCount(out, n, fixed, tag) {
  if (n < 16) put(out, fixed | n, 0);
  else if (n < 0x10000) put(out, tag, 2, "setUint16", n);
  else put(out, tag + 1, 4, "setUint32", n);
}

/** The value in `data` (ArrayBuffer or view). Binary values are views into it, not copies. Throws MsgpackError. */
export function decode(data) {
  const bytes = data instanceof ArrayBuffer ? new Uint8Array(data) : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  const reader = { bytes, view: new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), at: 0 };
  const value = read(reader, 0);
  if (reader.at !== bytes.length) throw new MsgpackError(`${bytes.length - reader.at} bytes after the value`);
  return value;
}

const SCALARS = {
  0xca: ["getFloat32", 4], 0xcb: ["getFloat64", 8], 0xcc: ["getUint8", 1], 0xcd: ["getUint16", 2], 0xce: ["getUint32", 4],
  0xcf: ["getBigUint64", 8], 0xd0: ["getInt8", 1], 0xd1: ["getInt16", 2], 0xd2: ["getInt32", 4], 0xd3: ["getBigInt64", 8],
};
const SIZED = {
  0xc4: [readBin, "getUint8", 1], 0xc5: [readBin, "getUint16", 2], 0xc6: [readBin, "getUint32", 4],
  0xd9: [readStr, "getUint8", 1], 0xda: [readStr, "getUint16", 2], 0xdb: [readStr, "getUint32", 4],
  0xdc: [readArray, "getUint16", 2], 0xdd: [readArray, "getUint32", 4], 0xde: [readMap, "getUint16", 2], 0xdf: [readMap, "getUint32", 4],
};

function read(reader, depth) {
  if (depth > MAX_DEPTH) throw new MsgpackError(`nested deeper than ${MAX_DEPTH}`);
  const tag = reader.bytes[take(reader, 1)];
  if (tag < 0x80) return tag;
  if (tag >= 0xe0) return tag - 0x100;
  if (tag < 0x90) return readMap(reader, tag & 0x0f, depth);
  if (tag < 0xa0) return readArray(reader, tag & 0x0f, depth);
  if (tag < 0xc0) return readStr(reader, tag & 0x1f);
  if (tag === 0xc0) return null;
  if (tag === 0xc2 || tag === 0xc3) return tag === 0xc3;
  if (tag in SCALARS) {
    const value = number(reader, ...SCALARS[tag]);
    return typeof value === "bigint" && Number.isSafeInteger(Number(value)) ? Number(value) : value;
  }
  if (!(tag in SIZED)) throw new MsgpackError(`tag 0x${tag.toString(16)} (an extension type or unused) is not part of the protocol`);
  const [readBody, getter, size] = SIZED[tag];
  return readBody(reader, number(reader, getter, size), depth);
}

function take(reader, n) {
  const at = reader.at;
  if (at + n > reader.bytes.length) throw new MsgpackError(`the value ends after ${reader.bytes.length} bytes, ${at + n} expected`);
  reader.at = at + n;
  return at;
}

function number(reader, getter, size) {
  return reader.view[getter](take(reader, size));
}

function readBin(reader, n) {
  const at = take(reader, n);
  return reader.bytes.subarray(at, at + n);
}

function readStr(reader, n) {
  try {
    return utf8Decoder.decode(readBin(reader, n));
  } catch (error) {
    throw error instanceof MsgpackError ? error : new MsgpackError("text that is not UTF-8");
  }
}

function readArray(reader, n, depth) {
  if (n > reader.bytes.length - reader.at) throw new MsgpackError(`an array of ${n} does not fit into the message`);
  return Array.from({ length: n }, () => read(reader, depth + 1));
}

function readMap(reader, n, depth) {
  const map = {};
  for (let i = 0; i < n; i++) {
    const key = read(reader, depth + 1);
    if (typeof key !== "string") throw new MsgpackError(`a map key of type ${typeof key}, expected text`);
    // defineProperty, so that "__proto__" is a field like any other
    Object.defineProperty(map, key, { value: read(reader, depth + 1), enumerable: true, writable: true, configurable: true });
  }
  return map;
}
