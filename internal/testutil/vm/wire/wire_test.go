package wire

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFramesComeBackInOrder(t *testing.T) {
	var line bytes.Buffer
	w := NewWriter(&line)
	require.NoError(t, w.Send(Ready, nil))
	require.NoError(t, w.Send(Stdout, []byte("a\r\n\x00\xA5b")))
	require.NoError(t, w.SendJSON(Exit, Status{Code: 3}))

	for _, want := range []struct {
		kind    Kind
		payload string
	}{{Ready, ""}, {Stdout, "a\r\n\x00\xA5b"}, {Exit, `{"code":3,"millis":0}`}} {
		kind, payload, err := Read(&line)
		require.NoError(t, err)
		require.Equal(t, want.kind, kind)
		require.Equal(t, want.payload, string(payload))
	}
	_, _, err := Read(&line)
	require.ErrorIs(t, err, io.EOF)
}

func TestReadRefusesWhatIsNoFrame(t *testing.T) {
	_, _, err := Read(strings.NewReader("Kernel panic - not syncing"))
	require.ErrorIs(t, err, ErrGarbled)
	_, _, err = Read(strings.NewReader("\xA5o\xFF\xFF\xFF\xFF"))
	require.ErrorIs(t, err, ErrGarbled, "a length beyond all reason")
	_, _, err = Read(strings.NewReader("\xA5o\x00\x00\x00\x05abc"))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}
