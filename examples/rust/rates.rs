// SPDX-License-Identifier: Apache-2.0

//! Sets the rates of sockets, of this process and of this user, and reads them back.
//!
//!     rustc -O -o rates rates.rs
//!     ./rates tcp4:send:8:1000000 accepted6:receive:8:500000 process:total:8:2000000
//!
//! A socket, what it is to do, the size of the value in bytes, and the value. See
//! ../README.md. No crate is needed: the C library is linked anyway.

use std::ffi::c_void;
use std::io::Error;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::io::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::{env, mem, process, thread, time::Duration};

extern "C" {
    fn socket(family: i32, kind: i32, protocol: i32) -> i32;
    fn setsockopt(fd: i32, level: i32, name: i32, value: *const c_void, len: u32) -> i32;
    fn getsockopt(fd: i32, level: i32, name: i32, value: *mut c_void, len: *mut u32) -> i32;
}

const AF_INET: i32 = 2;
const AF_INET6: i32 = 10;
const SOCK_STREAM: i32 = 1;
const SOCK_CLOEXEC: i32 = 0o2000000;
const IPPROTO_TCP: i32 = 6;
const IPPROTO_UDP: i32 = 17;
const EINPROGRESS: u32 = 115;

// Of include/netnice.h.
const TCP_SNDRATE: i32 = 7001;
const TCP_RCVRATE: i32 = 7002;
const NETNICE_LIMIT: i32 = 7005;
const PRIO_NET: u32 = 3;
const PRIO_NET_USER: u32 = 4;
const ASK: u64 = u64::MAX;

#[repr(C)]
struct Limit {
    which: u32,
    who: u32,
    direction: u32,
    error: u32,
    bytes_per_sec: u64,
}

fn set<T: AsRawFd>(s: &T, level: i32, name: i32, value: &[u8]) -> Result<(), Error> {
    let r = unsafe { setsockopt(s.as_raw_fd(), level, name, value.as_ptr().cast(), value.len() as u32) };
    if r == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

fn get<S: AsRawFd, T>(s: &S, level: i32, name: i32, into: &mut T) -> Result<(), Error> {
    let mut len = mem::size_of::<T>() as u32;
    let to: *mut T = into;
    let r = unsafe { getsockopt(s.as_raw_fd(), level, name, to.cast(), &mut len) };
    if r == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

fn fresh(family: i32) -> Result<OwnedFd, Error> {
    let fd = unsafe { socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0) };
    if fd < 0 { Err(Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
}

fn rate_of_socket(kind: &str, name: i32, value: &[u8]) -> Result<u64, Error> {
    let v6 = kind.ends_with('6');
    let here = if v6 { "[::1]:0" } else { "127.0.0.1:0" };
    let mut got = 0u64;
    if kind.starts_with("udp") {
        let s = UdpSocket::bind(here)?;
        set(&s, IPPROTO_UDP, name, value)?;
        get(&s, IPPROTO_UDP, name, &mut got)?;
    } else if kind == "unix" {
        set(&UnixDatagram::unbound()?, IPPROTO_TCP, name, value)?;
    } else if kind.starts_with("open") {
        let s = TcpStream::connect(TcpListener::bind(here)?.local_addr()?)?;
        set(&s, IPPROTO_TCP, name, value)?;
        get(&s, IPPROTO_TCP, name, &mut got)?;
    } else if kind.starts_with("accepted") {
        let l = TcpListener::bind(here)?;
        set(&l, IPPROTO_TCP, name, value)?;
        let _s = TcpStream::connect(l.local_addr()?)?;
        get(&l.accept()?.0, IPPROTO_TCP, name, &mut got)?;
    } else {
        let s = fresh(if v6 { AF_INET6 } else { AF_INET })?;
        set(&s, IPPROTO_TCP, name, value)?;
        get(&s, IPPROTO_TCP, name, &mut got)?;
    }
    Ok(got)
}

/// Sets a limit of a process or a user, or asks for it; returns what holds.
fn limit(which: u32, who: u32, direction: u32, value: u64) -> Result<u64, Error> {
    let s = fresh(AF_INET)?;
    let mut l = Limit { which, who, direction, error: 0, bytes_per_sec: value };
    let size = mem::size_of::<Limit>();
    let bytes = unsafe { std::slice::from_raw_parts((&l as *const Limit).cast::<u8>(), size) };
    set(&s, IPPROTO_TCP, NETNICE_LIMIT, bytes)?;
    for _ in 0..5000 {
        get(&s, IPPROTO_TCP, NETNICE_LIMIT, &mut l)?;
        if l.error != EINPROGRESS {
            break;
        }
        thread::sleep(Duration::from_millis(1));
    }
    if l.error == 0 { Ok(l.bytes_per_sec) } else { Err(Error::from_raw_os_error(l.error as i32)) }
}

fn run(words: &[&str]) -> Result<u64, Error> {
    let direction = match words[1] { "send" => 0, "receive" => 1, _ => 2 };
    let size: usize = words[2].parse().expect("a size");
    let value: i64 = words[3].parse().expect("a value");
    if let "process" | "user" | "init" = words[0] {
        let which = if words[0] == "user" { PRIO_NET_USER } else { PRIO_NET };
        let who = if words[0] == "init" { 1 } else { 0 }; // 0: mine
        limit(which, who, direction, if value < 0 { 1 << 63 } else { value as u64 })?;
        let holds = limit(which, who, direction, ASK)?;
        limit(which, who, direction, 0)?;
        return Ok(holds);
    }
    let mut bytes = [0u8; 16];
    bytes[..8].copy_from_slice(&value.to_ne_bytes());
    rate_of_socket(words[0], if direction == 0 { TCP_SNDRATE } else { TCP_RCVRATE }, &bytes[..size])
}

fn main() {
    for text in env::args().skip(1) {
        let words: Vec<&str> = text.split(':').collect();
        if words.len() != 4 {
            eprintln!("{text}: SOCKET:WHAT:SIZE:VALUE");
            process::exit(2);
        }
        match run(&words) {
            Ok(got) => println!("{text} {got}"),
            Err(e) => match e.raw_os_error() {
                Some(22) => println!("{text} EINVAL"),
                Some(1) => println!("{text} EPERM"),
                Some(92) => println!("{text} ENOPROTOOPT"),
                Some(95) => println!("{text} EOPNOTSUPP"),
                _ => println!("{text} {e}"),
            },
        }
    }
}
