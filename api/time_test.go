package api

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// An unknown time is left out of the JSON text: no reader sees the year 1.
func TestNoTimeIsOfTheYearOne(t *testing.T) {
	for _, v := range []any{
		Node{}, NodeList{}, Status{}, Power{}, PowerList{}, Adapted{}, AdaptArea{}, AdaptList{}, Event{},
	} {
		text, err := json.Marshal(v)
		require.NoError(t, err)
		require.NotContains(t, string(text), "0001-", "%T", v)
	}
}
