package observe

import (
	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/enforce"
)

// Unknown returns the traffic without a known process.
func (o *Observer) Unknown() (api.Unknown, error) {
	now, err := o.sampler.stats()
	if err != nil {
		return api.Unknown{}, err
	}
	return o.unknown(now), nil
}

// unknown returns traffic without a known process in the form of the API.
func (o *Observer) unknown(now Sample) (shown api.Unknown) {
	u := now.Unknown
	shown.Up = unknownUsage(u.SentSocket, u.SentKernel, enforce.Volume{})
	shown.Down = unknownUsage(u.ReceivedSocket, u.ReceivedKernel, u.ReceivedNobody)
	rates := o.readings.Load().ofUnknown().rates(unknownPoint(now), o.tick/2)
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

func unknownPoint(now Sample) point {
	u := now.Unknown
	return point{
		at: now.At, bytes: u.SentSocket.Bytes + u.SentKernel.Bytes,
		down: u.ReceivedSocket.Bytes + u.ReceivedKernel.Bytes + u.ReceivedNobody.Bytes,
	}
}
