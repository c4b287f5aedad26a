package demo

import (
	"context"
	"errors"
	"fmt"
	"io"

	tea "charm.land/bubbletea/v2"
)

// model is the live picture.
type model struct {
	state         State
	started       bool
	width, height int
	interrupt     func()
}

// ended is the message that the demo is over.
type ended struct{}

func (m model) Init() tea.Cmd { return nil }

func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case State:
		m.state, m.started = msg, true
	case tea.KeyPressMsg:
		if key := msg.String(); key == "ctrl+c" || key == "q" || key == "esc" {
			m.interrupt() // the demo cleans up and then sends ended
		}
	case ended:
		return m, tea.Quit
	}
	return m, nil
}

func (m model) View() tea.View {
	if !m.started {
		return tea.NewView(" setting up\n")
	}
	return tea.NewView(Frame(m.state, m.width, m.height, styleFor(true)))
}

// runLive directs the demo with its live picture; the last frame stays on the terminal.
func runLive(ctx context.Context, cancel func(), d *director, out io.Writer) error {
	// Signals reach ctx through its creator. Here they would end the picture before the demo has cleaned up.
	program := tea.NewProgram(model{width: 80, height: 24, interrupt: cancel},
		tea.WithOutput(out), tea.WithoutSignalHandler(), tea.WithFPS(20))
	finished := make(chan error, 1)
	go func() {
		err := d.direct(ctx, func(s State) { program.Send(s) })
		program.Send(ended{})
		finished <- err
	}()
	_, err := program.Run()
	cancel() // if the picture broke, the demo must not go on unseen
	if err != nil {
		err = fmt.Errorf("draw: %w", err)
	}
	return errors.Join(<-finished, err)
}
