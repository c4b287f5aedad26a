#!/usr/bin/env node
// SPDX-License-Identifier: Apache-2.0

// Sets the rates of sockets, of this process and of this user, and reads them back.
//
//   cc -shared -fPIC -I/usr/include/node -o sockopt.node sockopt.c
//   node rates.js tcp4:send:8:1000000 accepted6:receive:8:500000 process:total:8:2000000
//
// A socket, what it is to do, the size of the value in bytes, and the value. See
// ../README.md. SOCKOPT names the module, if it is not beside this file.
'use strict'

const dgram = require('node:dgram')
const net = require('node:net')
const os = require('node:os')
const { once } = require('node:events')
const { setTimeout: sleep } = require('node:timers/promises')
const sockopt = require(process.env.SOCKOPT ?? './sockopt.node')

const IPPROTO_TCP = 6
const IPPROTO_UDP = 17
// Of include/netnice.h.
const TCP_SNDRATE = 7001
const TCP_RCVRATE = 7002
const NETNICE_LIMIT = 7005
const PRIO_NET = 3
const PRIO_NET_USER = 4
const ASK = 2n ** 64n - 1n

class Failure extends Error {
  constructor (number) {
    super(Object.entries(os.constants.errno).find(([name, n]) => n === number && name !== 'ENOTSUP')?.[0] ?? `error ${number}`)
  }
}

// The socket's number is no part of Node's documented interface, but has been
// there since its first releases. Of UDP sockets Node warns that it may go.
process.noDeprecation = true
const fd = (s) => s._handle.fd

function check (failed) {
  if (failed) throw new Failure(failed)
}

function get (s, level, option) {
  const value = Buffer.alloc(8)
  check(sockopt.get(fd(s), level, option, value))
  return value.readBigUInt64LE()
}

async function listener (at) {
  const l = net.createServer().listen(at)
  await once(l, 'listening')
  return l
}

async function rateOfSocket (kind, option, value) {
  const host = kind.endsWith('6') ? '::1' : '127.0.0.1'
  const open = []
  try {
    if (kind.startsWith('udp')) {
      const s = dgram.createSocket(kind)
      open.push(s)
      s.bind(0, host)
      await once(s, 'listening')
      check(sockopt.set(fd(s), IPPROTO_UDP, option, value))
      return get(s, IPPROTO_UDP, option)
    }
    if (kind === 'unix') {
      const l = await listener({ path: '\0netnice-example-' + process.pid })
      open.push(l)
      check(sockopt.set(fd(l), IPPROTO_TCP, option, value))
      return get(l, IPPROTO_TCP, option)
    }
    const l = await listener({ host, port: 0 })
    open.push(l)
    if (kind.startsWith('accepted')) check(sockopt.set(fd(l), IPPROTO_TCP, option, value))
    const s = net.connect(l.address().port, host)
    const [accepted] = await once(l, 'connection')
    if (s.connecting) await once(s, 'connect')
    open.push({ close: () => { s.destroy(); accepted.destroy() } })
    if (kind.startsWith('accepted')) return get(accepted, IPPROTO_TCP, option)
    check(sockopt.set(fd(s), IPPROTO_TCP, option, value))
    return get(s, IPPROTO_TCP, option)
  } finally {
    for (const s of open) s.close()
  }
}

// Sets a limit of a process or a user, or asks for it; returns what holds.
async function limit (which, who, direction, value) {
  const any = net.createServer().listen(0, '127.0.0.1') // any TCP socket will do
  await once(any, 'listening')
  try {
    const l = Buffer.alloc(24)
    ;[which, who, direction].forEach((n, i) => l.writeUInt32LE(n, 4 * i))
    l.writeBigUInt64LE(value, 16)
    check(sockopt.set(fd(any), IPPROTO_TCP, NETNICE_LIMIT, l))
    for (let i = 0; i < 5000; i++) {
      check(sockopt.get(fd(any), IPPROTO_TCP, NETNICE_LIMIT, l))
      if (l.readUInt32LE(12) !== os.constants.errno.EINPROGRESS) break
      await sleep(1)
    }
    check(l.readUInt32LE(12))
    return l.readBigUInt64LE(16)
  } finally {
    any.close()
  }
}

async function run (text) {
  const [kind, what, size, value] = text.split(':')
  const direction = { send: 0, receive: 1, total: 2 }[what]
  if (['process', 'user', 'init'].includes(kind)) {
    const which = kind === 'user' ? PRIO_NET_USER : PRIO_NET
    const who = kind === 'init' ? 1 : 0 // 0: mine
    await limit(which, who, direction, BigInt(value) < 0n ? 2n ** 63n : BigInt(value))
    const holds = await limit(which, who, direction, ASK)
    await limit(which, who, direction, 0n)
    return holds
  }
  const bytes = Buffer.alloc(16)
  bytes.writeBigInt64LE(BigInt(value))
  return rateOfSocket(kind, direction === 0 ? TCP_SNDRATE : TCP_RCVRATE, bytes.subarray(0, Number(size)))
}

async function main () {
  for (const text of process.argv.slice(2)) {
    try {
      console.log(text, String(await run(text)))
    } catch (e) {
      console.log(text, e instanceof Failure ? e.message : String(e))
    }
  }
}

main()
