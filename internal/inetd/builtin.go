package inetd

import (
	"bytes"
	"io"
	"net"
	"time"
)

// builtIn returns the services that need no program (RFC 862, 863, 864, 867).
func builtIn() []string { return []string{"echo", "discard", "chargen", "daytime"} }

const (
	// builtInIdle is how long a connection of a built-in service may be idle.
	builtInIdle = 10 * time.Minute
	// chargenLine is the length of a line of chargen: 72 of the 95 printable characters.
	chargenLine = 72
)

// chargen holds all lines of the character generator once; the service repeats them.
var chargen = func() []byte {
	var out bytes.Buffer
	const first, characters = ' ', 95
	for line := range characters {
		for i := range chargenLine {
			out.WriteByte(byte(first + (line+i)%characters))
		}
		out.WriteString("\r\n")
	}
	return out.Bytes()
}()

func daytime(now time.Time) []byte { return []byte(now.Format(time.ANSIC) + "\r\n") }

// patient is a connection with a deadline for each read and each write.
type patient struct{ net.Conn }

func (c patient) Read(b []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(builtInIdle)) // an error leaves the connection without a deadline
	return c.Conn.Read(b)
}

func (c patient) Write(b []byte) (int, error) {
	_ = c.SetWriteDeadline(time.Now().Add(builtInIdle))
	return c.Conn.Write(b)
}

// converse serves one connection to its end.
func converse(service string, conn net.Conn) {
	defer conn.Close()
	c := patient{conn}
	switch service {
	case "echo":
		_, _ = io.Copy(c, c) // until the other end goes
	case "discard":
		_, _ = io.Copy(io.Discard, c)
	case "daytime":
		_, _ = c.Write(daytime(time.Now()))
	case "chargen":
		for {
			if _, err := c.Write(chargen); err != nil {
				return
			}
		}
	}
}

// answer returns the answer of a built-in service to a datagram, nil for none. A datagram from a port whose service may
// answer by itself gets none: the two services would answer each other for ever.
func answer(service string, datagram []byte, from net.Addr, line int) []byte {
	if udp, ok := from.(*net.UDPAddr); !ok || udp.Port == 7 || udp.Port == 13 || udp.Port == 17 || udp.Port == 19 || udp.Port == 37 {
		return nil
	}
	switch service {
	case "echo":
		return datagram
	case "daytime":
		return daytime(time.Now())
	case "chargen":
		at := line % 95 * (chargenLine + 2)
		return chargen[at : at+chargenLine+2]
	}
	return nil
}
