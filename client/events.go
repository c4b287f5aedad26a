package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/netnice/netnice/api"
)

// maxEvent bounds one event, in bytes.
const maxEvent = 1 << 20

// Events calls got with each event until ctx ends, got fails, or the daemon leaves. In the last case the error wraps
// ErrNoDaemon.
func (c *Client) Events(ctx context.Context, got func(api.Event) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://netnice/v1/events", nil)
	if err != nil {
		return fmt.Errorf("make request: %w", err)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return c.explain(err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		text, err := io.ReadAll(io.LimitReader(response.Body, maxEvent))
		if err != nil {
			return c.explain(err)
		}
		return decodeError(response, text)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		var e api.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("read an event: %w", err)
		}
		if err := got(e); err != nil {
			return err
		}
	}
	err = lines.Err()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err == nil, errors.Is(err, io.ErrUnexpectedEOF):
		return c.explain(io.EOF)
	}
	return c.explain(err)
}
