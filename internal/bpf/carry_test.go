package bpf

import (
	"testing"

	"github.com/cilium/ebpf/btf"
	"github.com/stretchr/testify/require"
)

// The fields of another release's sockets are found by their names, at whatever offset they are.
func TestFormerSocketOf(t *testing.T) {
	long, word := &btf.Int{Name: "long", Size: 8}, &btf.Int{Name: "int", Size: 4}
	was := &btf.Struct{Name: "nn_socket", Size: 56}
	for i, name := range []string{"tgid", "uid", "new", "pad"} {
		was.Members = append(was.Members, btf.Member{Name: name, Type: word, Offset: btf.Bits(8 * 4 * i)})
	}
	for i, name := range []string{"receive_bytes_per_sec", "cgroup", "child", "rate_bytes_per_sec", "start_boottime_ns"} {
		was.Members = append(was.Members, btf.Member{Name: name, Type: &btf.Typedef{Name: "u64", Type: long}, Offset: btf.Bits(8 * (16 + 8*i))})
	}
	at, err := formerSocketOf(was)
	require.NoError(t, err)
	require.Equal(t, formerSocket{
		Tgid: 0, Uid: 4, ReceiveBytesPerSec: 16, Cgroup: 24, Child: 32, RateBytesPerSec: 40, StartBoottimeNs: 48,
	}, at)

	was.Members[0].Type = long
	_, err = formerSocketOf(was)
	require.ErrorIs(t, err, ErrLayout, "of another size")
	was.Members[0].Name = "pid"
	_, err = formerSocketOf(was)
	require.ErrorIs(t, err, ErrLayout, "of another name")
}
