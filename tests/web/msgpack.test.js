import assert from "node:assert/strict";
import { test } from "node:test";

import { decode, encode, MsgpackError } from "../../web/msgpack.js";

const hex = (bytes) => Buffer.from(bytes).toString("hex");
const bytes = (text) => new Uint8Array(Buffer.from(text.replaceAll(" ", ""), "hex"));

// Value and its only encoding here, written from the msgpack specification.
const VECTORS = [
  [null, "c0"], [false, "c2"], [true, "c3"],
  [0, "00"], [127, "7f"], [128, "cc80"], [255, "ccff"], [256, "cd0100"], [65535, "cdffff"], [65536, "ce00010000"],
  [4294967295, "ceffffffff"], [4294967296, "cf0000000100000000"], [Number.MAX_SAFE_INTEGER, "cf001fffffffffffff"],
  [9007199254740993n, "cf0020000000000001"], [18446744073709551615n, "cfffffffffffffffff"],
  [-1, "ff"], [-32, "e0"], [-33, "d0df"], [-128, "d080"], [-129, "d1ff7f"], [-32768, "d18000"], [-32769, "d2ffff7fff"],
  [-2147483648, "d280000000"], [-2147483649, "d3ffffffff7fffffff"], [-9223372036854775808n, "d38000000000000000"],
  [0.5, "cb3fe0000000000000"], [-1.5, "cbbff8000000000000"], [1e300, "cb7e37e43c8800759c"], [Infinity, "cb7ff0000000000000"],
  ["", "a0"], ["hi", "a26869"], ["海", "a3e6b5b7"], ["a".repeat(31), "bf" + "61".repeat(31)], ["a".repeat(32), "d920" + "61".repeat(32)],
  ["a".repeat(256), "da0100" + "61".repeat(256)], ["a".repeat(65536), "db00010000" + "61".repeat(65536)],
  [bytes(""), "c400"], [bytes("00ff"), "c40200ff"], [new Uint8Array(256), "c50100" + "00".repeat(256)], [new Uint8Array(65536), "c600010000" + "00".repeat(65536)],
  [[], "90"], [[1, [2]], "920191" + "02"], [Array(16).fill(0), "dc0010" + "00".repeat(16)], [Array(65536).fill(0), "dd00010000" + "00".repeat(65536)],
  [{}, "80"], [{ a: 1, b: null }, "82a16101a162c0"],
  [{ type: "text", text: "Hi" }, "82a474797065a474657874a474657874a24869"],
];

test("every kind of value is written as the specification says, and read back", () => {
  for (const [value, expected] of VECTORS) {
    assert.equal(hex(encode(value)), expected);
    assert.deepEqual(decode(bytes(expected)), value);
  }
});

test("a map of sixteen and of 65,536 fields takes the longer headers", () => {
  const fields = (n) => Object.fromEntries(Array.from({ length: n }, (_, i) => [`k${i}`, i]));
  assert.equal(hex(encode(fields(16)).subarray(0, 3)), "de0010");
  assert.equal(hex(encode(fields(65536)).subarray(0, 5)), "df00010000");
  assert.deepEqual(decode(encode(fields(65536))), fields(65536));
});

test("forms that another writer may choose are read", () => {
  assert.equal(decode(bytes("ca3f000000")), 0.5);
  assert.equal(decode(bytes("cd0001")), 1);
  assert.equal(decode(bytes("d30000000000000005")), 5);
  assert.equal(decode(bytes("da000161")), "a");
  assert.deepEqual(decode(bytes("dc000101")), [1]);
  assert.deepEqual(decode(bytes("df00000001a16102")), { a: 2 });
});

test("an undefined field is left out of a map", () => {
  assert.equal(hex(encode({ a: undefined, b: 1 })), "81a16201");
});

test("a binary value is a view into the message, at any alignment", () => {
  const message = bytes("81a464617461c403010203");
  const { data } = decode(message);
  assert.deepEqual([...data], [1, 2, 3]);
  assert.equal(data.buffer, message.buffer);
  const odd = new Uint8Array(12);
  odd.set(message, 1);
  assert.deepEqual([...decode(odd.subarray(1)).data], [1, 2, 3]);
});

test("the field __proto__ is data and changes no prototype", () => {
  const value = decode(bytes("81a95f5f70726f746f5f5f81a161c3"));
  assert.equal(Object.getPrototypeOf(value), Object.prototype);
  assert.equal(value.a, undefined);
});

test("a message cut at any byte is refused", () => {
  const whole = encode({ type: "audio", turn: 1, pts_ms: 20.5, data: new Uint8Array([1, 2, 3, 4]), more: [1, -5000, "x".repeat(40)] });
  for (let n = 0; n < whole.length; n++) assert.throws(() => decode(whole.subarray(0, n)), MsgpackError);
  assert.throws(() => decode(new Uint8Array([...whole, 0])), /1 bytes after/);
});

test("extension types, the unused tag, bad UTF-8, keys that are not text and deep nesting are refused", () => {
  for (const bad of ["c70000", "c8000000", "c90000000000", "d40000", "d5000000", "d600000000ff", "d70000000000000000ff", "d80000", "c1"]) {
    assert.throws(() => decode(bytes(bad)), /not part of the protocol/);
  }
  assert.throws(() => decode(bytes("a1ff")), /not UTF-8/);
  assert.throws(() => decode(bytes("8101c0")), /map key of type number/);
  assert.throws(() => decode(bytes("91".repeat(40) + "c0")), /nested deeper/);
  assert.throws(() => decode(bytes("ddffffffff00")), /does not fit/);
});

test("what has no place on the wire is not written", () => {
  assert.throws(() => encode(() => 1), MsgpackError);
  assert.throws(() => encode({ a: Symbol("x") }), MsgpackError);
  assert.throws(() => encode(1n << 64n), /above/);
  assert.throws(() => encode(-(1n << 63n) - 1n), /below/);
  const loop = [];
  loop.push(loop);
  assert.throws(() => encode(loop), /nested deeper/);
});
