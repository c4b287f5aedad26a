// Package wire is the protocol between the host and the init program inside a test machine: one Job in a file, and a
// stream of frames back over a serial line. It owns the encoding and nothing else.
package wire

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// JobPath is the file in which the init program finds its Job.
const JobPath = "/etc/vm-job.json"

// DataTTY is the serial line in the guest that carries the frames.
const DataTTY = "/dev/ttyS1"

// Cgroup layouts that a guest can start with.
const (
	CgroupV2     = "v2"     // cgroup v2 at /sys/fs/cgroup
	CgroupHybrid = "hybrid" // v1 controllers, v2 at /sys/fs/cgroup/unified
	CgroupV1     = "v1"     // v1 controllers only
	CgroupNone   = "none"   // nothing mounted
)

// Job is the task of the init program.
type Job struct {
	Argv    []string `json:"argv"`
	Env     []string `json:"env"`
	Dir     string   `json:"dir"`     // working directory
	Modules []string `json:"modules"` // paths of kernel modules, in the order to load
	Cgroup  string   `json:"cgroup"`  // one of the layouts above
	NoBPFFS bool     `json:"no_bpffs"`
	Fetch   []string `json:"fetch"`   // files to send back at the end
	Seconds int      `json:"seconds"` // time after which the program is ended
}

// Kind is the kind of content of a frame.
type Kind byte

// The kinds of frame. Exit is the last one of a run.
const (
	Ready  Kind = 'r' // the guest is up, the program is about to start; no payload
	Stdout Kind = 'o'
	Stderr Kind = 'e'
	Note   Kind = 'n' // a failure of the init program; text
	File   Kind = 'f' // a fetched file: JSON FileFrame
	Exit   Kind = 'x' // JSON Status
)

// FileFrame is the payload of a File frame.
type FileFrame struct {
	Path string `json:"path"`
	Data []byte `json:"data,omitempty"`
	Err  string `json:"err,omitempty"`
}

// Status is the outcome of the program, the payload of an Exit frame.
type Status struct {
	Code   int    `json:"code"`          // exit status; 128 + signal if a signal ended it
	Err    string `json:"err,omitempty"` // the program could not be started, or not be waited for
	Millis int64  `json:"millis"`        // run time
}

// MaxPayload bounds a frame's payload, in bytes.
const MaxPayload = 64 << 20

// ErrGarbled says that the stream holds bytes outside of frames.
var ErrGarbled = errors.New("garbled frame")

const headerLen = 6 // a sync byte, the kind, the length

const syncByte = 0xA5

// Writer writes frames; it is safe for concurrent use.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter returns a Writer on w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Send writes one frame.
func (w *Writer) Send(kind Kind, payload []byte) error {
	frame := make([]byte, headerLen, headerLen+len(payload))
	frame[0], frame[1] = syncByte, byte(kind)
	binary.BigEndian.PutUint32(frame[2:], uint32(len(payload)))
	frame = append(frame, payload...)
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.w.Write(frame); err != nil {
		return fmt.Errorf("send %c frame: %w", kind, err)
	}
	return nil
}

// SendJSON writes one frame whose payload is v in JSON.
func (w *Writer) SendJSON(kind Kind, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %c frame: %w", kind, err)
	}
	return w.Send(kind, payload)
}

// Read reads one frame. It returns io.EOF at the end of the stream and
// io.ErrUnexpectedEOF inside a frame.
func Read(r io.Reader) (Kind, []byte, error) {
	var header [headerLen]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(header[2:])
	if header[0] != syncByte || size > MaxPayload {
		return 0, nil, fmt.Errorf("%w: header % x", ErrGarbled, header)
	}
	payload := make([]byte, size)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, io.ErrUnexpectedEOF
	}
	return Kind(header[1]), payload, nil
}
