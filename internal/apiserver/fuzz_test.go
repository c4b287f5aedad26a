package apiserver

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/netnice/netnice/api"
	"github.com/netnice/netnice/internal/auth"
)

// recorder has the deadlines of a connection, as answers that go on set them.
type recorder struct{ *httptest.ResponseRecorder }

func (recorder) SetReadDeadline(time.Time) error  { return nil }
func (recorder) SetWriteDeadline(time.Time) error { return nil }

// The answer to any request is JSON with a known code, and the backend gets only the call that is answered. The request
// is raw, so that the fuzzer changes lines and headers, too.
func FuzzRequests(f *testing.F) {
	for _, seed := range []struct{ line, body string }{
		{"GET /v1/status", ""},
		{"GET /v1/nodes?subject=pid:5", ""},
		{"PUT /v1/limits", `{"subject":{"kind":"pid","id":"5"},"wish":{"up_bytes_per_sec":1,"burst_ns":18446744073709551615,"weight":100,"loopback":true,"input_meter":false},"scope":true,"dry_run":true}`},
		{"PUT /v1/limits", `{"subject":{"kind":"host"},"wish":{"down_bytes_per_sec":1e3}}{}`},
		{"PUT /v1/limits", strings.Repeat("[", 10001)},
		{"DELETE /v1/limits?subject=user:bob&dry_run=true", ""},
		{"GET /v1/rules/test?pid=-0x5", ""},
		{"POST /v1/rules/reload", ""},
		{"PUT /v1/system", `{"input_meter":false,"dry_run":true}`},
		{"PUT /v1/limits", `{"subject":{"kind":"group","id":"night"},"wish":{"total_bytes_per_sec":1},"members":[{"subject":{"kind":"pid","id":"5"},"weight":300}]}`},
		{"GET /v1/power", ""},
		{"PUT /v1/power", `{"pid":4711,"power":-20,"slot_ns":1000000,"strict":true}`},
		{"GET /v1/adapt", ""},
		{"PUT /v1/adapt", `{"host":"any,!10.0.0.0/8","share_ppm":300000,"least_bytes_per_sec":1000,"off":false}`},
		{"GET /v1/why?pid=4711&fd=3&over=250ms", ""},
		{"GET /v1/why?pid=1;over=1s", ""},
		{"GET /v1/events", ""},
		{"GET /v1/events", "{"},
		{"GET /v1/rules?%zz", ""},
		{"DELETE /v1/limits?subject=to:%5B2001:db8::%5D:443/tcp@user:bob&dry_run=T", ""},
		{"POST /v1/down", "\x00"},
		{"0 *", "0"},
		{"CONNECT n:80", ""},
		{"DELETE /v1/limits?" + strings.Repeat("\xe3", 2000), ""},
	} {
		f.Add(seed.line, seed.body)
	}
	codes := []string{api.CodeBadRequest, api.CodeDenied, api.CodeNotFound, api.CodeConflict, api.CodeNotSupported}
	f.Fuzz(func(t *testing.T, line, body string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(line + " HTTP/1.1\r\nHost: n\r\nTransfer-Encoding: chunked\r\n\r\n")))
		if err != nil {
			return // the HTTP server refuses it before the handler
		}
		r.Body, r.ContentLength = http.NoBody, 0
		if body != "" {
			r.ContentLength = -1
			r.Body = httptest.NewRequest("PUT", "/", strings.NewReader(body)).Body
		}
		b := &backend{}
		w := recorder{httptest.NewRecorder()}
		Handler(b).ServeHTTP(w, r.WithContext(auth.WithActor(r.Context(), bob)))
		switch {
		case w.Code == http.StatusOK:
			require.NotEmpty(t, b.asked)
			for line := range bytes.Lines(w.Body.Bytes()) { // events have several lines
				require.True(t, json.Valid(line))
			}
		case w.Code/100 == 3: // a path with dots is redirected
			require.Empty(t, b.asked)
		default:
			var e api.Error
			require.NoError(t, json.Unmarshal(w.Body.Bytes(), &e), "%q", w.Body)
			require.Contains(t, codes, e.Code)
			require.NotEmpty(t, e.Message)
			require.Less(t, len(e.Message), 2*mostSaid)
			require.Empty(t, b.asked)
			require.Equal(t, api.HTTPStatus(e.Code), w.Code)
		}
		if b.asked != "" && b.asked != "status" && b.asked != "powers" && b.asked != "system" {
			require.Equal(t, bob, b.by, "in whose name")
		}
	})
}
