package bpf

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/stretchr/testify/require"
)

func TestIsLoaded(t *testing.T) {
	broken := errors.New("broken")
	programs := map[ebpf.ProgramID]string{3: "other", 7: sockopsProgram}
	next := func(after ebpf.ProgramID) (ebpf.ProgramID, error) {
		for id := after + 1; id < 10; id++ {
			if _, there := programs[id]; there || id == 5 {
				return id, nil
			}
		}
		return 0, fs.ErrNotExist
	}
	name := func(id ebpf.ProgramID) (string, error) {
		if id == 5 { // the program has gone since it was listed
			return "", fs.ErrNotExist
		}
		return programs[id], nil
	}
	up, err := isLoaded(next, name)
	require.NoError(t, err)
	require.True(t, up)
	delete(programs, 7)
	up, err = isLoaded(next, name)
	require.NoError(t, err)
	require.False(t, up)
	_, err = isLoaded(next, func(ebpf.ProgramID) (string, error) { return "", broken })
	require.ErrorIs(t, err, broken, "what cannot be looked at may be somebody's")
	_, err = isLoaded(func(ebpf.ProgramID) (ebpf.ProgramID, error) { return 0, broken }, name)
	require.ErrorIs(t, err, broken)
}
