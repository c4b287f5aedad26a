package daemon

import (
	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

// renderUnknown returns traffic without a known process in the form of the API.
func (d *Daemon) renderUnknown(now sample) (shown api.Unknown) {
	u := now.unknown
	shown.Up = unknownUsage(u.SentSocket, u.SentKernel, enforce.Volume{})
	shown.Down = unknownUsage(u.ReceivedSocket, u.ReceivedKernel, u.ReceivedNobody)
	rates := d.unknown.rates(unknownPoint(now), d.opts.Tick/2)
	shown.Up.RateBytesPerSec, shown.Down.RateBytesPerSec = rates.up, rates.down
	return shown
}

func unknownUsage(socket, kernel, nobody enforce.Volume) api.UnknownUsage {
	return api.UnknownUsage{
		Bytes:   socket.Bytes + kernel.Bytes + nobody.Bytes,
		Packets: socket.Packets + kernel.Packets + nobody.Packets,
		BytesOf: api.UnknownBytes{Socket: socket.Bytes, Kernel: kernel.Bytes, NoSocket: nobody.Bytes},
	}
}

func unknownPoint(now sample) point {
	u := now.unknown
	return point{
		at: now.at, bytes: u.SentSocket.Bytes + u.SentKernel.Bytes,
		down: u.ReceivedSocket.Bytes + u.ReceivedKernel.Bytes + u.ReceivedNobody.Bytes,
	}
}
